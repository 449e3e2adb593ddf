"""FedFDP, Alg. 2 of the paper made safe, and more: fair clipping, a private loss, fairness at the server.

The paper's fairness acts through each record's clipping coefficient; with its C = 0.1 nearly every record is clipped to
C whatever its weight, and λ does nothing. `server_lam` acts on the aggregated updates instead, from losses already
released: free of privacy cost, and it works at any C.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from fedfdp.algorithms.base import (
    Algorithm,
    Batch,
    Broadcast,
    Client,
    LossQuery,
    Population,
    Released,
    ServerState,
    Upload,
    descend,
)
from fedfdp.algorithms.fedfair import first_loss
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import Weights
from fedfdp.fairness.adaptive import Drive
from fedfdp.fairness.bounds import mean_bound, quantile_bound
from fedfdp.fairness.coefficients import Form, fair_clip, form_named
from fedfdp.fairness.weights import fair_weight
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class FDPState(ServerState):
    loss: float  # F(w_t) = Σ p_i F̄_i, from released losses
    clip_scale: float = 1.0  # the current bound C as a multiple of the configured one
    losses: dict[str, float] = field(default_factory=dict)  # F̄_i: the released losses, smoothed over rounds
    drive: Drive = field(default_factory=Drive)  # of an adaptive λ_s


@dataclass(frozen=True)
class FDPBroadcast(Broadcast):
    loss: Annotated[float, ranges.LOSS]
    clip_scale: Annotated[float, ranges.CLIP_SCALE]


@dataclass(frozen=True)
class FDPUpload(Upload):
    loss: Annotated[float, ranges.LOSS]  # F̃_i
    norms_within: float | None  # the noised fraction of gradients that C does not clip


@dataclass(frozen=True)
class FDPMemory:
    loss_bound: Annotated[float, ranges.LOSS_BOUND]  # C_l of the next round


@dataclass(frozen=True, kw_only=True)
class FedFDP(Algorithm):
    """Fair, private federated learning. `lam` weighs records at the clients, `server_lam` updates at the server."""

    lr: float = 16.0  # η of the first round; suits the default C = 0.1
    lam: Annotated[float, ranges.LAMBDA] = 0.0  # λ, how much more a record with a high loss counts; 0: not at all
    coefficients: Form = "bounded"  # how that weight enters clipping: fairness/coefficients.py
    kappa: Annotated[float, ranges.KAPPA] = 2.0  # κ, the largest weight of a record; not of the paper's form
    gamma: Annotated[float, ranges.GAMMA] = 0.01  # γ, what the automatic coefficients add to a gradient's norm
    loss_at: Literal["global", "local"] = "global"  # where the released loss is taken: before or after local steps
    loss_bound: Literal["fixed", "mean", "quantile"] = "fixed"  # how C_l moves; mean is Eq. 16
    loss_clip: Annotated[float, ranges.LOSS_BOUND] = 2.5  # first C_l: losses are clamped to [0, C_l]
    loss_floor: Annotated[float, ranges.LOSS_BOUND] = 0.01  # the least that C_l may become
    loss_ceiling: Annotated[float, ranges.LOSS_BOUND] = 10.0  # the most that C_l may become
    quantile: float = 0.95  # the part of the losses that C_l is to hold, where `loss_bound` is quantile
    clip_bound: Literal["fixed", "quantile"] = "fixed"  # whether C follows the gradients' norms
    clip_quantile: float = 0.5  # the part of the gradients that C is to leave whole
    quantile_step: Annotated[float, ranges.QUANTILE_STEP] = 0.2  # how fast both bounds move
    server_rule: Literal["fixed", "adaptive"] = "fixed"  # whether λ_s is `server_lam` or found during the run
    server_lam: Annotated[float, ranges.LAMBDA] = 5.0  # of the fixed rule; the adaptive one finds its own
    server_low: float = 0.1  # the least weight of a client's update
    server_high: Annotated[float, ranges.MOST_WEIGHT] = 10.0  # the largest weight of a client's update
    smoothing: float = 0.9  # the part of a client's old loss that the server keeps in a round
    initial_loss: Annotated[float, ranges.LOSS] | None = None  # F at first, a public guess; None: ln(classes)

    name: ClassVar[str] = "fedfdp"
    State: ClassVar[type] = FDPState
    Message: ClassVar[type] = FDPBroadcast
    Reply: ClassVar[type] = FDPUpload
    Memory: ClassVar[type] = FDPMemory

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.server_low <= 1, "server_low", "between 0 and 1", "0.1 is usual")
        self.require(0 <= self.smoothing < 1, "smoothing", "at least 0, below 1", "0 takes each round's loss as it is")
        for name in ("quantile", "clip_quantile"):
            self.require(0 < getattr(self, name) < 1, name, "strictly between 0 and 1", "leave it out for the default")
        fits = self.loss_floor <= self.loss_clip <= self.loss_ceiling
        self.require(fits, "loss_clip", f"within [{self.loss_floor}, {self.loss_ceiling}]", "move floor or ceiling")

    def check_privacy(self, privacy: DPSGD | None) -> None:
        private_only = form_named(self.coefficients).private_only
        if privacy is None and (private_only or self.clip_bound == "quantile"):
            name = "coefficients" if private_only else "clip_bound"
            raise SettingError(f"algorithm.{name}", getattr(self, name), "only with privacy", "leave it out")

    def released(self) -> tuple[str, ...]:
        return tuple(name for name in super().released() if name != "norms_within" or self.clip_bound == "quantile")

    def joint_event(self, privacy: DPSGD) -> Event:
        return privacy.event(losses=1, counts=(self.loss_bound == "quantile") + (self.clip_bound == "quantile"))

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> FDPState:
        return FDPState(0, weights, population, first_loss(self.initial_loss, population))

    def broadcast(self, state: FDPState) -> FDPBroadcast:
        return FDPBroadcast(state.round, state.weights, state.loss, state.clip_scale)

    def memory(self) -> FDPMemory:
        return FDPMemory(self.loss_clip)

    def coefficient(self, broadcast: FDPBroadcast, privacy: DPSGD | None) -> Coefficient:
        return fair_clip(
            self.coefficients,
            clip=broadcast.clip_scale * privacy.clip if privacy else float("inf"),
            lam=self.lam,
            reference=broadcast.loss,
            kappa=self.kappa,
            gamma=self.gamma,
        )

    def local(self, broadcast: FDPBroadcast, memory: FDPMemory, client: Client) -> tuple[FDPUpload, FDPMemory]:
        coefficient = self.coefficient(broadcast, client.privacy)
        steps = list(self.batches(broadcast, client))
        joint = steps[0] if self.loss_at == "global" else steps[-1]  # the batch that releases its loss too
        answers: list[Released] = []

        def fair_gradient(batch: Batch, here: Weights) -> Weights:
            if batch is not joint:
                return batch.release(here, coefficient=coefficient).gradient
            count = self.loss_bound == "quantile"
            after = None if self.loss_at == "global" else lambda g: w.add(here, g, scale=-self.rate(broadcast.round))
            query = LossQuery(memory.loss_bound, count=count, at=after)
            count_norms = self.clip_bound == "quantile"
            answers.append(batch.release(here, coefficient=coefficient, loss=query, count_norms=count_norms))
            return answers[0].gradient

        lr = self.rate(broadcast.round)
        update = descend(broadcast.weights, steps, lr=lr, direction=fair_gradient, consume=True)
        loss = answers[0].loss
        assert loss is not None
        upload = FDPUpload(client.name, client.records, update, loss, answers[0].norms_within)
        return upload, FDPMemory(self.next_loss_bound(memory.loss_bound, answers[0]))

    def next_loss_bound(self, bound: float, released: Released) -> float:
        """C_l of the client's next round."""
        limits = {"floor": self.loss_floor, "ceiling": self.loss_ceiling}
        if self.loss_bound == "mean" and released.loss is not None:
            return mean_bound(released.loss, **limits)
        if self.loss_bound == "quantile" and released.losses_within is not None:
            within = released.losses_within
            return quantile_bound(bound, within, quantile=self.quantile, step=self.quantile_step, **limits)
        return bound

    def aggregate(self, state: FDPState, uploads: Iterable[FDPUpload]) -> FDPState:
        """w_t + Σ ω_i (w_i − w_t)/Σ ω_i with ω_i = p_i·clamp(1 + λ_s(F̄_i − F)): read once, one upload at a time."""
        total, omegas = w.zeros_like(state.weights), 0.0
        losses, loss, within, weight = dict(state.losses), 0.0, 0.0, 0.0
        lam = self.server_lam if self.server_rule == "fixed" else state.drive.lam(state.loss)
        limits = {"low": self.server_low, "high": self.server_high}
        for upload in uploads:
            before = losses.get(upload.client, state.loss)
            smooth = self.smoothing * before + (1 - self.smoothing) * upload.loss
            omega = upload.weight * fair_weight(smooth, state.loss, lam=lam, **limits)
            w.add_(total, upload.update, scale=omega)
            losses[upload.client] = smooth
            omegas += omega
            loss += upload.weight * smooth
            within += upload.weight * (upload.norms_within or 0.0)
            weight += upload.weight
        if not weight:
            return replace(state, round=state.round + 1)
        moved = w.add(state.weights, total, scale=1 / omegas) if omegas else state.weights
        mean = ranges.LOSS.nearest(loss / weight)
        return replace(
            state,
            round=state.round + 1,
            weights=moved,
            loss=mean,
            losses=losses,
            clip_scale=self.next_clip_scale(state.clip_scale, within / weight),
            drive=state.drive.after(losses, mean),
        )

    def next_clip_scale(self, scale: float, within: float) -> float:
        """C of the next round over the configured C, from all clients' noised counts together."""
        if self.clip_bound == "fixed":
            return scale
        limits = {"floor": ranges.CLIP_SCALE.low, "ceiling": ranges.CLIP_SCALE.high}
        return quantile_bound(scale, within, quantile=self.clip_quantile, step=self.quantile_step, **limits)
