"""Ditto: "Fair and Robust Federated Learning Through Personalization" (Li et al., 2021).

A global model w by FedAvg, and beside it a model v_i of each client that minimises F_i(v_i) + λ/2·‖v_i − w‖². The two
take their gradients from two passes over the records, each with batches of its own: both are paid for.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.local_round import Client, LocalRound, Released
from fedfdp.algorithms.personal import Personal, PersonalMemory
from fedfdp.algorithms.record_types import Broadcast, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class Ditto(Personal):
    """FedAvg, and K more steps of v_i ← v_i − η(g(v_i) + λ(v_i − w_t)) in every round."""

    lam: Annotated[float, ranges.PROXIMAL] = 0.1  # λ, how strongly v_i is pulled to w_t; 0: `local` beside FedAvg

    name: ClassVar[str] = "ditto"
    passes: ClassVar[int] = 2

    def direction(self, here: LocalRound[Broadcast, PersonalMemory], released: Released) -> Weights:
        """The first pass as it is; the second with the pull, λ counting as 1/η where it is larger."""
        if not here.second_pass:
            return released.gradient
        away = w.subtract(here.weights, here.broadcast.weights)
        return w.add(released.gradient, away, scale=min(self.lam, 1 / here.rate))

    def local(self, broadcast: Broadcast, memory: PersonalMemory, client: Client) -> tuple[Upload, PersonalMemory]:
        """K steps from w_t, whose sum is uploaded, and K steps from v_i with batches of their own."""
        batches, rate = list(self.batches(broadcast, client)), self.step_size(broadcast.round)
        steps, own = len(batches) // 2, memory.weights or broadcast.weights
        first = LocalRound(broadcast, memory, client, rate, steps)
        update = self.descend(first, batches[:steps])
        second = LocalRound(broadcast, memory, client, rate, steps, origin=own, second_pass=True)
        moved = w.add(own, self.descend(second, batches[steps:]))
        return Upload(client.name, client.records, update), PersonalMemory(moved)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"lam": (0.01, 0.1, 1.0), **super().grid()}
