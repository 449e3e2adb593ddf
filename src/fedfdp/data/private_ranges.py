"""Ranges that are not public, estimated once under differential privacy from noised counts on a public grid.

A record adds one to one count per column and changes nothing else. So removing it changes the counts of all d columns
together by at most √d in Euclidean norm, and noise of σ·√d on every count is one Gaussian release of multiplier σ.
The ranges are computed from the noised counts alone; test records are not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray

from fedfdp.core.errors import DataError
from fedfdp.core.records import digest
from fedfdp.data.columns import Range
from fedfdp.privacy.noise.randomness import Key, Randomness

LEAST, MOST = -20, 40  # the powers of two that bound the bins, where no bounds are given
BINS = 64  # how many, where bounds are given
CHANCE = 0.01  # that in some bin of a column noise alone is taken for records

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Wanted:
    """A column whose range is to be found."""

    name: str
    within: Range | None = None  # public bounds that the range lies in, if there are any

    @property
    def edges(self) -> Floats:
        """Equal bins between the bounds; without bounds, one bin for each power of two on both sides of zero."""
        if self.within is not None:
            return np.linspace(*self.within, BINS + 1)
        sizes = np.exp2(np.arange(LEAST, MOST + 1))
        return np.concatenate([-sizes[::-1], sizes])


def counts(values: NDArray[np.floating], wanted: Sequence[Wanted]) -> Floats:
    """How many records fall in each bin, column after column; values outside count in the nearest bin."""
    parts = []
    for column, which in zip(values.T, wanted, strict=True):
        edges = which.edges
        known = column[~np.isnan(column)].astype(np.float64)
        parts.append(np.histogram(np.clip(known, edges[0], edges[-1]), edges)[0].astype(np.float64))
    return np.concatenate(parts)


def released(exact: Floats, columns: int, sigma: float, randomness: Randomness, client: str) -> Floats:
    """A holder's counts with noise: all that it releases."""
    scale = sigma * columns**0.5
    noised = torch.from_numpy(exact.copy())
    # Other counts or another σ are another release, and get other noise.
    key = Key(client, 0, 0, "ranges", digest(noised, scale))
    randomness.noised_(noised[None], [key], scale=scale, divisors=[1.0])
    return noised.numpy()


def ranges(total: Floats, wanted: Sequence[Wanted], *, sigma: float, holders: int, tail: float) -> Mapping[str, Range]:
    """The range of each column without its tails, from the sum of all holders' noised counts."""
    deviation = sigma * (len(wanted) * holders) ** 0.5
    found, start = {}, 0
    for which in wanted:
        edges = which.edges
        part = total[start : start + len(edges) - 1]
        start += len(part)
        # A bin that noise alone could have filled counts as empty.
        least = NormalDist().inv_cdf(1 - CHANCE / len(part)) * deviation
        kept = np.where(part > least, part, 0.0)
        if not kept.any():
            raise DataError(
                f"column {which.name!r}: too few records for a private range; it takes {least:,.0f} in one bin at "
                f"data.estimate.sigma = {sigma:g}: give a public range, or lower sigma, which costs more ε"
            )
        upto = np.concatenate([[0.0], np.cumsum(kept)]) / kept.sum()
        low, high = _quantile(upto, edges, kept, tail), _quantile(upto, edges, kept, 1 - tail)
        found[which.name] = (float(f"{low:.6g}"), float(f"{high:.6g}"))
    return found


def _quantile(upto: Floats, edges: Floats, kept: Floats, share: float) -> float:
    """The value below which this share of the records lies, as if they lay evenly within each bin."""
    filled = np.flatnonzero(kept)
    at = min(max(int(np.searchsorted(upto, share, side="left")) - 1, filled[0]), filled[-1])
    inside = (share - upto[at]) / (upto[at + 1] - upto[at])
    return float(edges[at] + min(max(inside, 0.0), 1.0) * (edges[at + 1] - edges[at]))
