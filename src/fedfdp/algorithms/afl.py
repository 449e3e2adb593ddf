"""AFL: "Agnostic Federated Learning" (Mohri et al., 2019), Stochastic-AFL.

It minimises the loss of the worst mixture of clients, max over ω on the simplex of Σ ω_i F_i: the model steps along
Σ ω_i ∇F_i, and ω climbs, ω ← Π(ω + γF), Π being the nearest point of the simplex. ω starts at p. A client that has not
been heard of keeps its share p_i; one that misses a round counts with its last smoothed loss.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from fedfdp.algorithms.base import Mean
from fedfdp.algorithms.by_loss import ByLoss, Losses, LossState, LossUpload
from fedfdp.core import ranges
from fedfdp.fairness.weights import onto_simplex


@dataclass(frozen=True)
class AFLState(LossState):
    mixture: dict[str, float] = field(default_factory=dict)  # ω of the clients heard of


@dataclass(frozen=True, kw_only=True)
class AFL(ByLoss):
    """Updates weighted by ω, which moves towards the clients with the highest losses."""

    mixture_rate: Annotated[float, ranges.LAMBDA] = 0.01  # γ, how fast ω moves; 0: FedAvg

    name: ClassVar[str] = "afl"
    State: ClassVar[type[AFLState]] = AFLState
    robust: ClassVar[tuple[str, ...]] = ("norm",)

    def aggregate(self, state: AFLState, uploads: Iterable[LossUpload]) -> AFLState:  # type: ignore[override]
        """w_t + Σ ω_i (w_i − w_t)/Σ ω_i with the ω of before; then ω climbs along the losses at w_t."""
        mean, now, mixture = Mean(state.weights), state.losses.copy(), dict(state.mixture)
        for upload in uploads:
            self.heard(state.losses, now, upload)
            share = upload.records / state.population.records
            mean.add(upload.update, upload.discount * mixture.setdefault(upload.client, share))
        moved, climbed = mean.added_to(state.weights), self.climbed(mixture, now)
        return replace(state, round=state.round + 1, weights=moved, losses=now, mixture=climbed)

    def climbed(self, mixture: dict[str, float], losses: Losses) -> dict[str, float]:
        """Π(ω + γF̄) over the clients heard of, whose ω together stay what they are."""
        names = sorted(mixture)
        raised = np.array([mixture[name] + self.mixture_rate * losses.of[name] for name in names])
        total = sum(mixture[name] for name in names)
        return dict(zip(names, onto_simplex(raised, total).tolist(), strict=True))

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"mixture_rate": (0.001, 0.01, 0.1), **super().grid()}
