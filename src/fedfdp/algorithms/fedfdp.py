"""FedFDP, Alg. 2 of the paper made safe, and more: fair clipping, a private loss, fairness at the server.

The paper's fairness acts through each record's clipping coefficient; with its C = 0.1 nearly every record is clipped to
C whatever its weight, and λ does nothing. `server_lam` acts on the aggregated updates instead, from losses already
released: free of privacy cost, and it works at any C.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.fedfair import first_loss, first_loss_advice
from fedfdp.algorithms.local_round import LocalRound, Question
from fedfdp.algorithms.record_types import LOSS_MEANING, Broadcast, ClientState, Population, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core.errors import SettingError, require
from fedfdp.core.records import Weights
from fedfdp.core.settings import left_out
from fedfdp.fairness.adaptive import Drive
from fedfdp.fairness.bounds import mean_bound, quantile_bound
from fedfdp.fairness.coefficients import Form, fair_clip, form_named
from fedfdp.fairness.weights import fair_weight
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD

SERVER_LAM = 5.0  # λ_s where the method is used by itself; a run chooses it for its clients


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
    loss: Annotated[float, ranges.LOSS] = field(metadata=LOSS_MEANING)  # F̃_i
    norms_within: float | None = field(metadata={"meaning": "the share of gradients within the clipping bound, noised"})


@dataclass(frozen=True)
class FDPMemory(ClientState):
    loss_bound: Annotated[float, ranges.LOSS_BOUND]  # C_l of the next round


@dataclass(frozen=True, kw_only=True)
class FedFDP(Algorithm[FDPState, FDPBroadcast, FDPUpload, FDPMemory]):
    """Fair, private federated learning. `lam` weighs records at the clients, `server_lam` updates at the server."""

    lam: Annotated[float, ranges.LAMBDA] = 0.0  # λ, how much more a record with a high loss counts; 0: not at all
    coefficients: Form = "bounded"  # how that weight enters clipping: fairness/coefficients.py
    kappa: Annotated[float, ranges.KAPPA] = 2.0  # κ, the largest weight of a record; `paper` does not use it
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
    server_lam: Annotated[float, ranges.LAMBDA] = None  # type: ignore[assignment]  # λ_s of the fixed rule
    server_low: float = 0.1  # the least weight of a client's update
    server_high: Annotated[float, ranges.MOST_WEIGHT] = 10.0  # the largest weight of a client's update
    smoothing: float = 0.9  # the part of a client's old loss that the server keeps in a round
    initial_loss: Annotated[float, ranges.LOSS] | None = None  # F at first, a public guess; None: ln(classes)

    name: ClassVar[str] = "fedfdp"
    robust: ClassVar[tuple[str, ...]] = Algorithm.robust

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

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> FDPState:
        return FDPState(0, weights, population, first_loss(self.initial_loss, population))

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

    def question(self, memory: FDPMemory) -> Question:
        return Question(
            memory.loss_bound,
            losses_within=self.loss_bound == "quantile",
            norms_within=self.clip_bound == "quantile",
            batch="first" if self.loss_at == "global" else "last",
        )

    def reply(self, here: LocalRound[FDPBroadcast, FDPMemory], update: Weights) -> tuple[FDPUpload, FDPMemory]:
        """F̃_i beside the update; and C_l of the client's next round."""
        upload = FDPUpload(here.client.name, here.client.records, update, here.loss, here.norms_within)
        return upload, FDPMemory(self.next_loss_bound(here.before.loss_bound, here.loss, here.losses_within))

    def next_loss_bound(self, bound: float, loss: float, within: float | None) -> float:
        """C_l after a round with this bound, from what the client released in it."""
        limits = {"floor": self.loss_floor, "ceiling": self.loss_ceiling}
        if self.loss_bound == "mean":
            return mean_bound(loss, **limits)  # Eq. 16
        if self.loss_bound == "quantile" and within is not None:
            return quantile_bound(bound, within, quantile=self.quantile, step=self.quantile_step, **limits)
        return bound

    def aggregate(self, state: FDPState, uploads: Iterable[FDPUpload]) -> FDPState:
        """w_t + Σ ω_i (w_i − w_t)/Σ ω_i with ω_i = p_i·clamp(1 + λ_s(F̄_i − F)): read once, one upload at a time."""
        mean, losses, loss, within, weight = Mean(state.weights), dict(state.losses), 0.0, 0.0, 0.0
        fixed = SERVER_LAM if left_out(self, "server_lam") else self.server_lam
        lam = fixed if self.server_rule == "fixed" else state.drive.lam(state.loss)
        limits = {"low": self.server_low, "high": self.server_high}
        for upload in uploads:
            before = losses.get(upload.client, state.loss)
            smooth = losses[upload.client] = self.smoothing * before + (1 - self.smoothing) * upload.loss
            mean.add(upload.update, upload.weight * fair_weight(smooth, state.loss, lam=lam, **limits))
            loss += upload.weight * smooth
            within += upload.weight * (upload.norms_within or 0.0)
            weight += upload.weight
        if not weight:
            return replace(state, round=state.round + 1)
        known = ranges.LOSS.nearest(loss / weight)
        return replace(
            state,
            round=state.round + 1,
            weights=mean.added_to(state.weights),
            loss=known,
            losses=losses,
            clip_scale=self.next_clip_scale(state.clip_scale, within / weight),
            drive=state.drive.after(losses, known),
        )

    def check_robust(self, rule: str) -> None:
        super().check_robust(rule)
        one = rule == "norm" or (self.server_rule == "fixed" and not self.server_lam)
        fix = "set algorithm.server_lam = 0, or take robust = norm"
        require(one, "server.robust", rule, "one vote for each client, which no server_lam can weigh", fix)

    def next_clip_scale(self, scale: float, within: float) -> float:
        """C of the next round over the configured C, from all clients' noised counts together."""
        if self.clip_bound == "fixed":
            return scale
        limits = {"floor": ranges.CLIP_SCALE.low, "ceiling": ranges.CLIP_SCALE.high}
        return quantile_bound(scale, within, quantile=self.clip_quantile, step=self.quantile_step, **limits)

    # What others ask of a method -------------------------------------------------------------------------------------

    def released(self) -> dict[str, str]:
        told = super().released()
        if self.clip_bound != "quantile":
            del told["norms_within"]
        return told

    def loss_of(self, upload: FDPUpload) -> float:
        return upload.loss

    def loss_bound_after(self, loss: float | None) -> float:
        if self.loss_bound == "quantile":
            return 0.0  # the client's count is not in its upload
        return self.loss_clip if loss is None else self.next_loss_bound(self.loss_clip, loss, None)

    def with_loss(self, loss: float) -> Self:
        return replace(self, initial_loss=loss)

    def advice(self, classes: int | None) -> tuple[str, ...]:
        return first_loss_advice(self.initial_loss, classes)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"lam": (0.0, 0.5), "kappa": (2.0, 4.0), "server_lam": (0.0, 5.0, 20.0), **super().grid()}

    def without_idle(self) -> Self:
        method, usual = self, FedFDP()
        if self.lam == 0:
            method = replace(method, kappa=usual.kappa)  # nothing is weighed, so nothing is bounded
        if self.server_rule == "adaptive":
            method = replace(method, server_lam=usual.server_lam)  # it finds its own
        return method
