"""FedFair, Alg. 1 of the FedFDP paper: a batch the model serves worse than average takes a longer step.

η_b = η(1 + λ(F_i(w, b) − F(w_t))). Every loss leaves the client as it is, so there is no private form: that is FedFDP.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import isfinite, log
from typing import Annotated, ClassVar, Self

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.local_round import LocalRound, Released
from fedfdp.algorithms.record_types import Broadcast, ClientState, Population, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class FairState(ServerState):
    loss: float  # F(w_t)


@dataclass(frozen=True)
class FairBroadcast(Broadcast):
    loss: Annotated[float, ranges.LOSS]


@dataclass(frozen=True)
class FairUpload(Upload):
    loss: float = field(metadata={"meaning": "the mean loss on all records, not noised"})  # F_i(w_i)


@dataclass(frozen=True, kw_only=True)
class FedFair(Algorithm[FairState, FairBroadcast, FairUpload, ClientState]):
    """Local SGD whose step grows with the gap between the batch's loss and the global one."""

    lam: Annotated[float, ranges.LAMBDA] = 0.1  # λ, by how much a loss above the global one lengthens a step
    initial_loss: Annotated[float, ranges.LOSS] | None = None  # F at first, a public guess; None: ln(classes)

    name: ClassVar[str] = "fedfair"
    private: ClassVar[bool] = False
    robust: ClassVar[tuple[str, ...]] = Algorithm.robust

    def check_privacy(self, privacy: DPSGD | None) -> None:
        if privacy is not None:
            raise SettingError("algorithm.name", self.name, "not private: it uploads losses as they are", "take fedfdp")

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> FairState:
        return FairState(0, weights, population, first_loss(self.initial_loss, population))

    def direction(self, here: LocalRound[FairBroadcast, ClientState], released: Released) -> Weights:
        """η_b/η·∇F_i(w, b)"""
        assert released.loss is not None  # a batch without privacy always tells it
        return w.multiply(released.gradient, self.stretch(released.loss, here.broadcast.loss))

    def stretch(self, batch_loss: float, global_loss: float) -> float:
        """η_b/η of Alg. 1, kept at 0 or more and finite whatever the losses are."""
        factor = 1 + self.lam * (batch_loss - global_loss)
        return max(factor, 0.0) if isfinite(factor) else 0.0

    def reply(self, here: LocalRound[FairBroadcast, ClientState], update: Weights) -> tuple[FairUpload, ClientState]:
        loss = here.client.loss(w.add(here.broadcast.weights, update))  # F_i(w_i)
        return FairUpload(here.client.name, here.client.records, update, loss), here.memory

    def aggregate(self, state: FairState, uploads: Iterable[FairUpload]) -> FairState:
        """F(w_{t+1}) = Σ p_i F_i(w_i) beside the mean of the updates."""
        mean, loss = Mean(state.weights), 0.0
        for upload in uploads:
            mean.add(upload.update, upload.weight)
            loss += upload.weight * upload.loss
        moved, known = mean.added_to(state.weights), loss / mean.weight if mean.weight else state.loss
        return replace(state, round=state.round + 1, weights=moved, loss=known)

    def loss_of(self, upload: FairUpload) -> float:
        return upload.loss

    def with_loss(self, loss: float) -> Self:
        return replace(self, initial_loss=loss)

    def advice(self, classes: int | None) -> tuple[str, ...]:
        return first_loss_advice(self.initial_loss, classes)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"lam": (0.0, 0.5), **super().grid()}


def first_loss(given: float | None, population: Population) -> float:
    """F(w_0), which must neither cost nor leak: ln(classes), or for regression a public guess."""
    if given is not None:
        return given
    if population.classes is None:
        allowed = "needed for regression: a public guess of the loss before training"
        # 1/3 is the squared error of a model that says 0 where targets are spread evenly over [−1, 1].
        fix = "0.3 suits targets in [−1, 1], which data.target scales them to"
        raise SettingError("algorithm.initial_loss", None, allowed, fix)
    return log(population.classes)


def first_loss_advice(given: float | None, classes: int | None) -> tuple[str, ...]:
    """What `first_loss` would refuse, said before a run."""
    if given is not None or classes is not None:
        return ()
    return ("algorithm.initial_loss is not given, and regression needs it: 0.3 suits targets in [−1, 1]",)
