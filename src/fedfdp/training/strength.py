"""How far the signal of all records rises above the noise: what can be expected before a record is read."""

import math
from dataclasses import dataclass

from fedfdp.algorithms.base import Algorithm
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.facts import PublicFacts

FAINT = 5.0  # signal over noise below which little is learnt


def signal(privacy: DPSGD, algorithm: Algorithm, rounds: int, share: float = 1.0) -> float:
    """√T·q/σ of T batches: what n records that all pull one way add up to is n times this, over the noise."""
    steps = math.ceil(rounds * share) * algorithm.private_steps(None, privacy)
    return math.sqrt(steps) * privacy.q / privacy.noise


@dataclass(frozen=True)
class Strength:
    """Signal over noise after all rounds, if all records pulled the same way: of the whole run and of each client.

    A client's clipped sum of n_i records is at most n_i·C long, and the noise on its weights √weights·σ·C. Over T
    rounds with batches of q·n_i the ratio is n_i·√T·(q/σ)/√weights; the noise of K clients adds up to √K of it.
    """

    whole: float
    by_client: tuple[float, ...]

    @classmethod
    def of(
        cls, facts: PublicFacts, algorithm: Algorithm, privacy: DPSGD, rounds: int, share: float = 1.0
    ) -> "Strength":
        """Of settings with nothing left open."""
        each = signal(privacy, algorithm, rounds, share) / math.sqrt(facts.weights)
        return cls(facts.total * each / math.sqrt(len(facts.sizes)), tuple(size * each for size in facts.sizes))

    def warning(self, epsilon: float | None) -> str:
        """What to expect of a signal that is drowned by the noise; empty where it is not."""
        if self.whole >= FAINT:
            return ""
        learnt = "nothing" if self.whole < FAINT / 4 else "little"
        raised = (
            "" if epsilon is None else f"raise epsilon from {epsilon:g} to about {epsilon * FAINT / self.whole:.2g}, "
        )
        return (
            f"expect {learnt} to be learnt: the signal is {self.whole:.2g} times the noise, and it takes {FAINT:g}; "
            f"{raised}take fewer columns or a smaller model, or merge small holders"
        )
