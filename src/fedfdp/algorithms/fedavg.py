"""Federated averaging: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan, 2017).

Clients take K steps or E epochs of SGD from the broadcast weights; the server averages what they reach. With privacy
every step is a DPSGD step, which makes it DP-FedAvg with a guarantee for every record.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Batch, Broadcast, Client, ClientState, Upload, descend
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """Σ p_i w_i after local SGD."""

    name: ClassVar[str] = "fedavg"

    def local(self, broadcast: Broadcast, memory: ClientState, client: Client) -> tuple[Upload, ClientState]:
        coefficient = self.coefficient(broadcast, client.privacy)

        def gradient(batch: Batch, here: Weights) -> Weights:
            return batch.release(here, coefficient=coefficient).gradient

        steps = self.batches(broadcast, client)
        update = descend(broadcast.weights, steps, lr=self.rate(broadcast.round), direction=gradient, consume=True)
        return Upload(client.name, client.records, update), memory
