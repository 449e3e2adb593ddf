"""Groups of records, such as the women and the men of all clients: how often each gets the favourable class."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

GROUPS = "groups"  # what a metric that compares groups needs; also the name of their table in a run's summary
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each record belongs to, by a column that was declared for it."""

    column: str  # its name
    names: tuple[str, ...]  # of the groups
    of: NDArray[np.int64]  # each record's group, by position
    favourable: int  # the class that is good to get

    def at(self, kept: NDArray[np.generic]) -> "Groups":
        """Of these records alone."""
        return replace(self, of=self.of[kept])

    def counts(self, among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """By group: how many of these records it has."""
        return np.bincount(self.of[among], minlength=len(self.names))

    def shares(self, hit: NDArray[np.bool_], among: NDArray[np.bool_]) -> Floats:
        """By group: of these records, the share that is hit; NaN where it has none."""
        whole = self.counts(among)
        return self.counts(hit & among) / np.where(whole > 0, whole, np.nan)


def gap(shares: Floats) -> float:
    """The highest share less the lowest; NaN where fewer than two groups have one."""
    known = shares[~np.isnan(shares)]
    return float(known.max() - known.min()) if len(known) > 1 else float("nan")
