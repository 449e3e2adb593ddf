"""What is better when three things count: accuracy, equality between clients (Ψ), and the worst client.

Pure comparison of measures; nothing is run or read here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedfdp.runs.folder import Json

REACH = 0.05  # runs further below the best accuracy are ranked by accuracy alone: a model that learnt nothing has Ψ ≈ 0

K = TypeVar("K")


@dataclass(frozen=True)
class Outcome:
    """What a setting reached after so many rounds."""

    round: int
    accuracy: float
    psi: float
    worst: float

    @classmethod
    def of(cls, entry: Json) -> "Outcome":
        """From one line of a run's metrics; a Ψ that is no number is the worst there is."""
        psi = float("inf") if entry["psi"] is None else entry["psi"]
        return cls(entry["round"], entry["accuracy"] or 0.0, psi, entry["worst_accuracy"] or 0.0)

    @classmethod
    def mean(cls, found: Sequence["Outcome"]) -> "Outcome":
        """Of runs of one setting with different seeds."""
        count = len(found)
        sums = (sum(getattr(one, name) for one in found) / count for name in ("accuracy", "psi", "worst"))
        return cls(min(one.round for one in found), *sums)

    def dominates(self, other: "Outcome") -> bool:
        """At least as good in everything, and better in something."""
        mine, theirs = (self.accuracy, -self.psi, self.worst), (other.accuracy, -other.psi, other.worst)
        return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))


def front(outcomes: Mapping[K, Outcome]) -> list[K]:
    """Those that none dominates, the most accurate first."""
    kept = [key for key, one in outcomes.items() if not any(other.dominates(one) for other in outcomes.values())]
    return sorted(kept, key=lambda key: -outcomes[key].accuracy)


def ranked(outcomes: Mapping[K, Outcome]) -> list[K]:
    """Best first: front after front of those near the best accuracy, then the rest by accuracy."""
    best = max((one.accuracy for one in outcomes.values()), default=0.0)
    near = {key: one for key, one in outcomes.items() if one.accuracy >= best - REACH}
    order: list[K] = []
    while near:
        layer = front(near)
        order += layer
        near = {key: one for key, one in near.items() if key not in layer}
    return order + sorted((key for key in outcomes if key not in order), key=lambda key: -outcomes[key].accuracy)


def chosen(outcomes: Mapping[K, Outcome], *, points: float) -> K:
    """The least Ψ among those within `points` percent of the best accuracy; of equals the more accurate."""
    best = max(one.accuracy for one in outcomes.values())
    near: Sequence[K] = [key for key, one in outcomes.items() if one.accuracy >= best - points / 100]
    return min(near, key=lambda key: (outcomes[key].psi, -outcomes[key].accuracy))
