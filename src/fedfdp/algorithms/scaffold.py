"""SCAFFOLD: "Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020), Alg. 1, option II.

Control variates c_i (a client's own direction) and c (everyone's) take the drift out of local steps. They are built
from the released update, so they are exactly as private as that update and cost nothing more. With one local step and
everyone taking part the corrections cancel: then it is FedAvg, at twice the traffic.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.local_round import LocalRound, Released
from fedfdp.algorithms.record_types import Broadcast, ClientState, Population, ServerState, Upload
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
    control_change: Weights = field(
        metadata={"meaning": "the change of the client's control variate, made of its noised update"}
    )  # Δc_i = c_i⁺ − c_i


@dataclass(frozen=True)
class ScaffoldMemory(ClientState):
    control: Weights = field(default_factory=Weights)  # c_i; empty before the first round, which means zero


@dataclass(frozen=True, kw_only=True)
class Scaffold(Algorithm[ScaffoldState, ScaffoldBroadcast, ScaffoldUpload, ScaffoldMemory]):
    """Σ p_i w_i after local steps along gradient − c_i + c."""

    name: ClassVar[str] = "scaffold"

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> ScaffoldState:
        return ScaffoldState(0, weights, population, w.zeros_like(weights))

    def direction(self, here: LocalRound[ScaffoldBroadcast, ScaffoldMemory], released: Released) -> Weights:
        """g_i(w) + (c − c_i), line 10"""
        c, c_i = here.broadcast.control, here.before.control
        return w.add(released.gradient, w.subtract(c, c_i) if c_i else c)

    def reply(
        self, here: LocalRound[ScaffoldBroadcast, ScaffoldMemory], update: Weights
    ) -> tuple[ScaffoldUpload, ScaffoldMemory]:
        """Δc_i = (w_t − w_i)/(Kη) − c, lines 12 and 13"""
        change = w.subtract(w.multiply(update, -1 / (here.steps * here.rate)), here.broadcast.control)
        own = here.before.control or w.zeros_like(change)
        upload = ScaffoldUpload(here.client.name, here.client.records, update, change)
        return upload, ScaffoldMemory(w.add(own, change))

    def aggregate(self, state: ScaffoldState, uploads: Iterable[ScaffoldUpload]) -> ScaffoldState:
        """The model moves by the mean over those that took part; c by their share of all, so that c stays Σ p_i c_i.

        That is also why an upload that comes late counts in full for c: the client has moved its c_i.
        """
        mean, control = Mean(state.weights), w.clone(state.control)
        for upload in uploads:
            mean.add(upload.update, upload.weight)
            w.add_(control, upload.control_change, scale=upload.records / state.population.records)
        return replace(state, round=state.round + 1, weights=mean.added_to(state.weights), control=control)
