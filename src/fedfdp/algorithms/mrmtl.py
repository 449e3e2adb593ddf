"""MR-MTL: "On Privacy and Personalization in Cross-Silo Federated Learning" (Liu et al., 2022).

Mean-regularised multi-task learning: client i keeps w_i and minimises F_i(w_i) + λ/2·‖w_i − w̄‖², w̄ being the mean of
all w_i. One private pass; the pull reads no record and is free. λ = 0 is `local`, a large λ nears FedAvg.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.local_round import LocalRound, Released
from fedfdp.algorithms.personal import Personal, PersonalMemory
from fedfdp.algorithms.record_types import Broadcast, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class MRMTL(Personal):
    """w_i ← w_i − η(g(w_i) + λ(w_i − w̄)); w̄ is the mean of the w_i of those that take part."""

    lam: Annotated[float, ranges.PROXIMAL] = 0.1  # λ, how strongly models are pulled together; 0: each for itself

    name: ClassVar[str] = "mrmtl"

    def start(self, broadcast: Broadcast, memory: PersonalMemory) -> Weights:
        return memory.weights or broadcast.weights

    def direction(self, here: LocalRound[Broadcast, PersonalMemory], released: Released) -> Weights:
        """g(w_i) + λ(w_i − w̄); λ counts as 1/η where it is larger: a longer pull would go beyond w̄."""
        away = w.subtract(here.weights, here.broadcast.weights)
        return w.add(released.gradient, away, scale=min(self.lam, 1 / here.rate))

    def reply(self, here: LocalRound[Broadcast, PersonalMemory], update: Weights) -> tuple[Upload, PersonalMemory]:
        """w_i − w̄, whose mean moves w̄ to the mean of the w_i."""
        own = w.add(here.origin, update)
        apart = w.subtract(own, here.broadcast.weights)
        return Upload(here.client.name, here.client.records, apart), PersonalMemory(own)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"lam": (0.01, 0.1, 1.0), **super().grid()}
