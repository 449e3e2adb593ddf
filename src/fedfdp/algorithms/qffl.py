"""q-FFL by q-FedAvg: "Fair Resource Allocation in Federated Learning" (Li et al., 2020), Alg. 2.

It minimises Σ p_i F_i^(q_f + 1)/(q_f + 1): the larger q_f, the more a client with a high loss counts. Every client
releases F_i(w_t); under privacy that is a clamped, noised mean over the first batch, one joint event with its gradient.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.local_round import LocalRound, Question
from fedfdp.algorithms.record_types import LOSS_MEANING, Broadcast, ClientState, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class QUpload(Upload):
    loss: Annotated[float, ranges.LOSS] = field(metadata=LOSS_MEANING)  # F_i(w_t)
    squared_norm: float = field(
        metadata={"meaning": "the size of the noised update, less what noise adds to it on average"}
    )  # ‖w_i − w_t‖²


@dataclass(frozen=True, kw_only=True)
class QFFL(Algorithm[ServerState, Broadcast, QUpload, ClientState]):
    """Updates weighted by F_i^q_f, with a step size from L = 1/η. q_f = 0 is FedAvg."""

    q_f: Annotated[float, ranges.EXPONENT] = 1.0  # how much more a client with a high loss counts; 0: not at all
    loss_clip: Annotated[float, ranges.LOSS_BOUND] = 2.5  # C_l: released losses are clamped to [0, C_l]
    loss_floor: Annotated[float, ranges.LOSS_BOUND] = 0.01  # above 0: losses are raised to powers

    name: ClassVar[str] = "qffl"

    def question(self, memory: ClientState) -> Question:
        return Question(self.loss_clip)

    def reply(self, here: LocalRound[Broadcast, ClientState], update: Weights) -> tuple[QUpload, ClientState]:
        """F_i(w_t), and ‖w_i − w_t‖² for the server's h_i"""
        client = here.client
        loss = here.loss if client.privacy else client.loss(here.broadcast.weights)
        noise = self.noise_in(here.broadcast, client.privacy, client.records, w.size(update))
        squared = max(w.squared_norm(update) - noise, 0.0)
        return QUpload(client.name, client.records, update, loss, squared), here.memory

    def aggregate(self, state: ServerState, uploads: Iterable[QUpload]) -> ServerState:
        """w_t − Σ p_i Δ_i/Σ p_i h_i, both divided by L: Δ_i/L = −F^q_f·u, h_i/L = q_f·F^(q_f − 1)·L‖u‖² + F^q_f."""
        mean, rate = Mean(state.weights), self.step_size(state.round)
        for upload in uploads:
            loss = max(upload.loss, self.loss_floor)
            power = loss**self.q_f
            h = self.q_f * power / loss * upload.squared_norm / rate + power
            mean.add(upload.update, upload.weight * power, divisor=upload.weight * h)
        return replace(state, round=state.round + 1, weights=mean.added_to(state.weights))

    def loss_of(self, upload: QUpload) -> float:
        return upload.loss
