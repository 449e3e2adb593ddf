"""FedDyn: "Federated Learning Based on Dynamic Regularization" (Acar et al., 2021).

Each client adds a linear term to its objective that makes the local optima agree with the global one. The term is built
from the released update, so under privacy it is as private as it is and costs nothing more; unlike SCAFFOLD's control
variates it never travels. The server's own term h acts like momentum: the larger α·K·η, the quicker it forgets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import Algorithm, Batch, Broadcast, Client, Population, ServerState, Upload, descend
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class DynState(ServerState):
    h: Weights  # Σ p_i h_i over all clients, whether they took part or not


@dataclass(frozen=True)
class DynMemory:
    h: Weights = field(default_factory=Weights)  # h_i, which tends to ∇F_i; empty before the first round: zero


@dataclass(frozen=True, kw_only=True)
class FedDyn(Algorithm):
    """Σ p_i w_i − h/α after local steps along gradient − h_i + α(w − w_t)."""

    alpha: Annotated[float, ranges.DYNAMIC] = 0.1  # α, how strongly local objectives are bent towards the global one

    name: ClassVar[str] = "feddyn"
    State: ClassVar[type] = DynState
    Memory: ClassVar[type] = DynMemory

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> DynState:
        return DynState(0, weights, population, w.zeros_like(weights))

    def local(self, broadcast: Broadcast, memory: DynMemory, client: Client) -> tuple[Upload, DynMemory]:
        start, coefficient = broadcast.weights, self.coefficient(broadcast, client.privacy)
        own = memory.h or w.zeros_like(start)

        def dynamic_gradient(batch: Batch, here: Weights) -> Weights:
            gradient = w.subtract(batch.release(here, coefficient=coefficient).gradient, own)
            return gradient if here is start else w.add(gradient, w.subtract(here, start), scale=self.alpha)

        steps = self.batches(broadcast, client)
        update = descend(start, steps, lr=self.rate(broadcast.round), direction=dynamic_gradient)
        return Upload(client.name, client.records, update), DynMemory(w.add(own, update, scale=-self.alpha))

    def aggregate(self, state: DynState, uploads: Iterable[Upload]) -> DynState:
        """The mean is over those that took part; h moves by their share of all, so that h stays Σ p_i h_i.

        That is also why an upload that comes late counts in full for h: the client has moved its h_i.
        """
        h = w.clone(state.h)

        def passing() -> Iterable[Upload]:
            for upload in uploads:
                w.add_(h, upload.update, scale=-self.alpha * upload.records / state.population.records)
                yield upload

        new: DynState = super().aggregate(state, passing())
        return replace(new, h=h, weights=w.add(new.weights, h, scale=-1 / self.alpha))
