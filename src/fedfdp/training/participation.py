"""Who takes part in a round of a simulation, drawn from the seed: fractions of the clients, dropouts, late replies.

A client that is away is not asked and not charged. One that is too slow has computed and paid; its reply is dropped, or
in asynchronous mode used when it arrives, with less weight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedfdp.core.errors import require
from fedfdp.core.kinds import check_kinds


@dataclass(frozen=True)
class Participation:
    """How many clients are asked, how many of them drop out or are late, and what happens to late replies."""

    fraction: float = 1.0  # the part of the clients that is asked in a round
    sampling: Literal["fixed", "random"] = "fixed"  # exactly that part, or each client with that probability
    dropout: float = 0.0  # the probability that an asked client is away, and pays nothing
    stragglers: float = 0.0  # the probability that a reply is late
    delay: int = 1  # the most rounds by which a reply is late
    asynchronous: bool = False  # whether late replies are used when they come, or dropped
    staleness: float = 0.5  # how much less late replies count: (1 + age)^(−staleness)

    def __post_init__(self) -> None:
        check_kinds(self, "participation")
        some = 0 < self.fraction <= 1
        require(some, "participation.fraction", self.fraction, "in (0, 1]", "1 asks every client in every round")
        for name in ("dropout", "stragglers"):
            value = getattr(self, name)
            require(0 <= value < 1, f"participation.{name}", value, "a probability below 1", "0 switches it off")
        require(self.delay >= 1, "participation.delay", self.delay, "1 round or more", "1 is usual")
        require(0 <= self.staleness < math.inf, "participation.staleness", self.staleness, "0 or more", "0.5 is usual")

    def round(self, names: Sequence[str], *, seed: int, round: int) -> "Attendance":
        """Who of these takes part in this round, and who is late by how many rounds. The same for the same seed."""
        if self.fraction == 1 and not self.dropout and not self.stragglers:
            return Attendance(tuple(names), {})
        rng = np.random.default_rng([seed, round, 0x9A47])  # a stream of its own, which no client draws from
        if self.sampling == "fixed":
            count = max(1, round_half_up(self.fraction * len(names)))
            asked = np.sort(rng.choice(len(names), size=count, replace=False))
        else:
            asked = np.flatnonzero(rng.random(len(names)) < self.fraction)
        there = asked[rng.random(len(asked)) >= self.dropout]
        slow = rng.random(len(there)) < self.stragglers
        by = rng.integers(1, self.delay + 1, size=len(there))
        late = {names[i]: int(d) for i, s, d in zip(there, slow, by, strict=True) if s}
        return Attendance(tuple(names[i] for i in there), late)

    def discount(self, age: int) -> float:
        """The weight of a reply that is `age` rounds old: (1 + age)^(−staleness) (Xie et al., 2019)."""
        return float((1 + age) ** -self.staleness)


@dataclass(frozen=True)
class Attendance:
    """The clients that compute in a round, and for those among them that are late, by how many rounds."""

    there: tuple[str, ...]
    late: dict[str, int]


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
