"""What the fair methods share: clients release their loss at w_t, the server smooths it and weighs updates by it.

Only the losses cost privacy; what the server makes of them is free. `fair_weight` says what a client counts for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.fedfair import first_loss, first_loss_advice
from fedfdp.algorithms.local_round import LocalRound, Question
from fedfdp.algorithms.record_types import LOSS_MEANING, Broadcast, ClientState, Population, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class Losses:
    """What the server knows of the clients that it has heard of: released losses, smoothed over rounds, and sizes."""

    first: float  # F before anyone was heard of, a public guess
    of: dict[str, float] = field(default_factory=dict)  # F̄_i
    records: dict[str, int] = field(default_factory=dict)  # n_i

    @property
    def mean(self) -> float:
        """F = Σ p_i F̄_i over these clients."""
        return self._mean(self.of) if self.of else self.first

    @property
    def excess(self) -> float:
        """Σ p_i (F̄_i − F)₊, by how much losses are above the mean."""
        mean = self.mean
        return self._mean({name: max(loss - mean, 0.0) for name, loss in self.of.items()}) if self.of else 0.0

    def _mean(self, values: dict[str, float]) -> float:
        # In the order of names: a state that was read back has its entries in another order than they came in.
        return sum(self.records[name] * values[name] for name in sorted(values)) / sum(self.records.values())

    def copy(self) -> "Losses":
        """One that can be added to while this one stays."""
        return Losses(self.first, dict(self.of), dict(self.records))


@dataclass(frozen=True)
class LossState(ServerState):
    losses: Losses


@dataclass(frozen=True)
class LossUpload(Upload):
    loss: Annotated[float, ranges.LOSS] = field(metadata=LOSS_MEANING)  # F_i(w_t)


@dataclass(frozen=True, kw_only=True)
class ByLoss(Algorithm[LossState, Broadcast, LossUpload, ClientState]):
    """w_t + Σ ω_i (w_i − w_t)/Σ ω_i with ω_i = p_i times what a rule makes of the client's smoothed loss."""

    robust: ClassVar[tuple[str, ...]] = ("norm",)  # a vote for each client would undo the rule's weights

    loss_clip: Annotated[float, ranges.LOSS_BOUND] = 2.5  # C_l: released losses are clamped to [0, C_l]
    smoothing: float = 0.9  # the part of a client's old loss that the server keeps in a round
    initial_loss: Annotated[float, ranges.LOSS] | None = None  # F at first, a public guess; None: ln(classes)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.smoothing < 1, "smoothing", "at least 0, below 1", "0 takes each round's loss as it is")

    # What a rule says ------------------------------------------------------------------------------------------------

    def fair_weight(self, loss: float, losses: Losses) -> float:
        """ω_i/p_i for a client's smoothed loss as it is now.

        `losses` is what is known of all: before this round, or with it where the rule has `keeps_updates`.
        """
        return 1.0

    def log_weight(self, loss: float) -> float:
        """A further factor of ω_i as its logarithm, for weights that no float holds."""
        return 0.0

    # What is the same for all ----------------------------------------------------------------------------------------

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> LossState:
        state: LossState = self.State(0, weights, population, Losses(first_loss(self.initial_loss, population)))
        return state

    def question(self, memory: ClientState) -> Question:
        return Question(self.loss_clip)

    def reply(self, here: LocalRound[Broadcast, ClientState], update: Weights) -> tuple[LossUpload, ClientState]:
        """F_i(w_t) beside the update; without privacy it is that of all records, as it is."""
        client = here.client
        loss = here.loss if client.privacy else client.loss(here.broadcast.weights)
        return LossUpload(client.name, client.records, update, loss), here.memory

    def heard(self, known: Losses, now: Losses, upload: LossUpload) -> float:
        """F̄_i with this upload's loss, noted in `now`. Of a client that is new, F was known."""
        before = known.of.get(upload.client, known.mean)
        smooth = ranges.LOSS.nearest(self.smoothing * before + (1 - self.smoothing) * upload.loss)
        now.of[upload.client], now.records[upload.client] = smooth, upload.records
        return smooth

    def aggregate(self, state: LossState, uploads: Iterable[LossUpload]) -> LossState:
        """The mean with fair weights: one upload at a time, or all of them once their losses are known."""
        mean, known, now = Mean(state.weights), state.losses, state.losses.copy()
        arriving: Iterable[tuple[LossUpload, float]] = ((one, self.heard(state.losses, now, one)) for one in uploads)
        if self.keeps_updates:  # as copies: an update may be a view into a buffer of many clients
            known, arriving = now, [(replace(one, update=w.clone(one.update)), loss) for one, loss in arriving]
        for upload, loss in arriving:
            weight = upload.weight * self.fair_weight(loss, known)
            mean.add(upload.update, weight, exponent=self.log_weight(loss))
        return replace(state, round=state.round + 1, weights=mean.added_to(state.weights), losses=now)

    def loss_of(self, upload: LossUpload) -> float:
        return upload.loss

    def with_loss(self, loss: float) -> Self:
        return replace(self, initial_loss=loss)

    def advice(self, classes: int | None) -> tuple[str, ...]:
        return first_loss_advice(self.initial_loss, classes)
