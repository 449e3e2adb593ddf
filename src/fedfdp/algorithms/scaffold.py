"""SCAFFOLD: "Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020), option II.

Control variates c_i (a client's own direction) and c (everyone's) take the drift out of local steps. They are built
from the released update, so under privacy they are as private as it is, and cost nothing more. With one local step and
everyone taking part the corrections cancel: then it is FedAvg, at twice the traffic.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Batch, Broadcast, Client, Population, ServerState, Upload, descend
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class ScaffoldState(ServerState):
    control: Weights  # c = Σ p_i c_i over all clients, whether they took part or not


@dataclass(frozen=True)
class ScaffoldBroadcast(Broadcast):
    control: Weights


@dataclass(frozen=True)
class ScaffoldUpload(Upload):
    control_change: Weights  # c_i⁺ − c_i


@dataclass(frozen=True)
class ScaffoldMemory:
    control: Weights = field(default_factory=Weights)  # c_i; empty before the first round, which means zero


@dataclass(frozen=True, kw_only=True)
class Scaffold(Algorithm):
    """Σ p_i w_i after local steps along gradient − c_i + c."""

    name: ClassVar[str] = "scaffold"
    State: ClassVar[type] = ScaffoldState
    Message: ClassVar[type] = ScaffoldBroadcast
    Reply: ClassVar[type] = ScaffoldUpload
    Memory: ClassVar[type] = ScaffoldMemory

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> ScaffoldState:
        return ScaffoldState(0, weights, population, w.zeros_like(weights))

    def broadcast(self, state: ScaffoldState) -> ScaffoldBroadcast:
        return ScaffoldBroadcast(state.round, state.weights, state.control)

    def local(
        self, broadcast: ScaffoldBroadcast, memory: ScaffoldMemory, client: Client
    ) -> tuple[ScaffoldUpload, ScaffoldMemory]:
        coefficient = self.coefficient(broadcast, client.privacy)
        own = memory.control or w.zeros_like(broadcast.control)
        correction = w.subtract(broadcast.control, own)
        taken = 0

        def corrected_gradient(batch: Batch, here: Weights) -> Weights:
            nonlocal taken
            taken += 1
            return w.add(batch.release(here, coefficient=coefficient).gradient, correction)

        steps = self.batches(broadcast, client)
        update = descend(broadcast.weights, steps, lr=self.rate(broadcast.round), direction=corrected_gradient)
        # c_i⁺ − c_i = (w_t − w_i)/(Kη) − c
        change = w.subtract(w.multiply(update, -1 / (taken * self.rate(broadcast.round))), broadcast.control)
        upload = ScaffoldUpload(client.name, client.records, update, change)
        return upload, ScaffoldMemory(w.add(own, change))

    def aggregate(self, state: ScaffoldState, uploads: Iterable[ScaffoldUpload]) -> ScaffoldState:
        """The model moves by the mean over those that took part; c by their share of all, so that c stays Σ p_i c_i.

        That is also why an upload that comes late counts in full for c: the client has moved its c_i.
        """
        control = w.clone(state.control)

        def passing() -> Iterable[ScaffoldUpload]:
            for upload in uploads:
                w.add_(control, upload.control_change, scale=upload.records / state.population.records)
                yield upload

        new: ScaffoldState = super().aggregate(state, passing())
        return replace(new, control=control)
