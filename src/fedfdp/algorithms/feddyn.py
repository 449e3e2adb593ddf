"""FedDyn: "Federated Learning Based on Dynamic Regularization" (Acar et al., 2021), Alg. 1.

Each client adds a linear term to its objective that makes the local optima agree with the global one. The term is built
from the released update, so it is exactly as private as that update and costs nothing more; unlike SCAFFOLD's control
variates it never travels. The server's own term h acts like momentum: the larger α·K·η, the quicker it forgets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.local_round import LocalRound, Released
from fedfdp.algorithms.record_types import Broadcast, ClientState, Population, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class DynState(ServerState):
    h: Weights  # Σ p_i h_i over all clients, whether they took part or not


@dataclass(frozen=True)
class DynMemory(ClientState):
    h: Weights = field(default_factory=Weights)  # h_i, which tends to ∇F_i; empty before the first round: zero


@dataclass(frozen=True, kw_only=True)
class FedDyn(Algorithm[DynState, Broadcast, Upload, DynMemory]):
    """Σ p_i w_i − h/α after local steps down F_i(w) − ⟨h_i, w⟩ + α/2·‖w − w_t‖² (Eq. 1)."""

    alpha: Annotated[float, ranges.DYNAMIC] = 0.1  # α, how strongly local objectives are bent towards the global one

    name: ClassVar[str] = "feddyn"

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> DynState:
        return DynState(0, weights, population, w.zeros_like(weights))

    def direction(self, here: LocalRound[Broadcast, DynMemory], released: Released) -> Weights:
        """∇F_i(w) − h_i + α(w − w_t)"""
        h_i = here.before.h
        gradient = w.subtract(released.gradient, h_i) if h_i else released.gradient
        if here.step == 0:
            return gradient
        return w.add(gradient, w.subtract(here.weights, here.broadcast.weights), scale=self.alpha)

    def reply(self, here: LocalRound[Broadcast, DynMemory], update: Weights) -> tuple[Upload, DynMemory]:
        """h_i ← h_i − α(w_i − w_t)"""
        own = here.before.h or w.zeros_like(update)
        return super().reply(here, update)[0], DynMemory(w.add(own, update, scale=-self.alpha))

    def aggregate(self, state: DynState, uploads: Iterable[Upload]) -> DynState:
        """The mean is over those that took part; h moves by their share of all, so that h stays Σ p_i h_i.

        That is also why an upload that comes late counts in full for h: the client has moved its h_i.
        """
        mean, h = Mean(state.weights), w.clone(state.h)
        for upload in uploads:
            mean.add(upload.update, upload.weight)
            w.add_(h, upload.update, scale=-self.alpha * upload.records / state.population.records)
        moved = w.add(mean.added_to(state.weights), h, scale=-1 / self.alpha)
        return replace(state, round=state.round + 1, weights=moved, h=h)
