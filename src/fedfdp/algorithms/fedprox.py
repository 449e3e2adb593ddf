"""FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020).

FedAvg whose local steps are pulled back towards the broadcast weights. The pull reads no record, so it is added after
the noise and is free. At the first step there is nothing to pull: with one local step a round FedProx is FedAvg.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import Algorithm, Batch, Broadcast, Client, ClientState, Upload, descend
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class FedProx(Algorithm):
    """Σ p_i w_i, where each w_i has gone down F_i(w) + μ/2·‖w − w_t‖²."""

    mu: Annotated[float, ranges.PROXIMAL] = 0.01  # μ, how strongly local steps are pulled back to the broadcast weights

    name: ClassVar[str] = "fedprox"

    def local(self, broadcast: Broadcast, memory: ClientState, client: Client) -> tuple[Upload, ClientState]:
        start, coefficient = broadcast.weights, self.coefficient(broadcast, client.privacy)

        def proximal_gradient(batch: Batch, here: Weights) -> Weights:
            gradient = batch.release(here, coefficient=coefficient).gradient
            return gradient if here is start else w.add(gradient, w.subtract(here, start), scale=self.mu)

        steps = self.batches(broadcast, client)
        update = descend(start, steps, lr=self.rate(broadcast.round), direction=proximal_gradient)
        return Upload(client.name, client.records, update), memory
