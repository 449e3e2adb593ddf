"""q-FFL by q-FedAvg: "Fair Resource Allocation in Federated Learning" (Li et al., 2020).

It minimises Σ p_i F_i^(q_f + 1)/(q_f + 1): the larger q_f, the more a client with a high loss counts. Every client
releases F_i(w_t); under privacy that is a clamped, noised mean over the first batch, one joint event with its gradient.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import (
    Algorithm,
    Batch,
    Broadcast,
    Client,
    ClientState,
    LossQuery,
    ServerState,
    Upload,
    descend,
)
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class QUpload(Upload):
    loss: Annotated[float, ranges.LOSS]  # F_i(w_t)
    squared_norm: float  # ‖w_i − w_t‖², less what the noise alone adds on average


@dataclass(frozen=True, kw_only=True)
class QFFL(Algorithm):
    """Updates weighted by F_i^q_f, with a step size from L = 1/η. q_f = 0 is FedAvg."""

    q_f: Annotated[float, ranges.EXPONENT] = 1.0  # how much more a client with a high loss counts; 0: not at all
    loss_clip: Annotated[float, ranges.LOSS_BOUND] = 2.5  # C_l: released losses are clamped to [0, C_l]
    loss_floor: Annotated[float, ranges.LOSS_BOUND] = 0.01  # above 0: losses are raised to powers

    name: ClassVar[str] = "qffl"
    Reply: ClassVar[type] = QUpload

    def joint_event(self, privacy: DPSGD) -> Event:
        return privacy.event(losses=1)

    def local(self, broadcast: Broadcast, memory: ClientState, client: Client) -> tuple[QUpload, ClientState]:
        coefficient = self.coefficient(broadcast, client.privacy)
        loss = None if client.privacy else client.loss(broadcast.weights)

        def gradient(batch: Batch, here: Weights) -> Weights:
            nonlocal loss
            if loss is not None:
                return batch.release(here, coefficient=coefficient).gradient
            released = batch.release(here, coefficient=coefficient, loss=LossQuery(self.loss_clip))
            loss = released.loss
            return released.gradient

        steps = self.batches(broadcast, client)
        update = descend(broadcast.weights, steps, lr=self.rate(broadcast.round), direction=gradient, consume=True)
        assert loss is not None  # there is at least one batch
        squared = max(w.squared_norm(update) - self.noise_in(update, broadcast, client), 0.0)
        return QUpload(client.name, client.records, update, loss, squared), memory

    def noise_in(self, update: Weights, broadcast: Broadcast, client: Client) -> float:
        """What noise adds to ‖w_i − w_t‖² on average: (ησC/(q·n_i))² a step and weight. All of it is public."""
        if client.privacy is None:
            return 0.0
        p, clip = client.privacy, self.coefficient(broadcast, client.privacy).clip
        steps = self.private_steps(broadcast, p)
        return steps * w.size(update) * (self.rate(broadcast.round) * p.noise * clip / (p.q * client.records)) ** 2

    def aggregate(self, state: ServerState, uploads: Iterable[QUpload]) -> ServerState:
        """w_t − Σ p_i Δ_i/Σ p_i h_i, both divided by L: Δ_i/L = −F^q_f·u, h_i/L = q_f·F^(q_f − 1)·L‖u‖² + F^q_f."""
        total, weight, rate = w.zeros_like(state.weights), 0.0, self.rate(state.round)
        for upload in uploads:
            loss = max(upload.loss, self.loss_floor)
            power = loss**self.q_f
            w.add_(total, upload.update, scale=upload.weight * power)
            weight += upload.weight * (self.q_f * power / loss * upload.squared_norm / rate + power)
        moved = w.add(state.weights, total, scale=1 / weight) if weight else state.weights
        return replace(state, round=state.round + 1, weights=moved)
