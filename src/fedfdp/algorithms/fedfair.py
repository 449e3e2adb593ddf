"""FedFair, Alg. 1 of the FedFDP paper: a batch the model serves worse than average takes a longer step.

η_b = η(1 + λ(F_i(w, b) − F(w_t))). Every loss leaves the client as it is, so there is no private form: that is FedFDP.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import (
    Algorithm,
    Batch,
    Broadcast,
    Client,
    ClientState,
    Population,
    ServerState,
    Upload,
    descend,
)
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
    loss: float  # F_i(w_i)


@dataclass(frozen=True, kw_only=True)
class FedFair(Algorithm):
    """Local SGD whose step grows with the gap between the batch's loss and the global one."""

    lam: Annotated[float, ranges.LAMBDA] = 0.1  # λ, by how much a loss above the global one lengthens a step
    initial_loss: Annotated[float, ranges.LOSS] | None = None  # F at first, a public guess; None: ln(classes)

    name: ClassVar[str] = "fedfair"
    State: ClassVar[type] = FairState
    Message: ClassVar[type] = FairBroadcast
    Reply: ClassVar[type] = FairUpload

    def check_privacy(self, privacy: DPSGD | None) -> None:
        if privacy is not None:
            raise SettingError("algorithm.name", self.name, "not private: it uploads losses as they are", "take fedfdp")

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> FairState:
        return FairState(0, weights, population, first_loss(self.initial_loss, population))

    def broadcast(self, state: FairState) -> FairBroadcast:
        return FairBroadcast(state.round, state.weights, state.loss)

    def local(self, broadcast: FairBroadcast, memory: ClientState, client: Client) -> tuple[FairUpload, ClientState]:
        plain = self.coefficient(broadcast, None)

        def fair_gradient(batch: Batch, here: Weights) -> Weights:
            released = batch.release(here, coefficient=plain)
            assert released.loss is not None  # a plain batch always tells it
            return w.multiply(released.gradient, self.stretch(released.loss, broadcast.loss))

        steps = self.batches(broadcast, client)
        update = descend(broadcast.weights, steps, lr=self.rate(broadcast.round), direction=fair_gradient)
        reached = w.add(broadcast.weights, update)
        return FairUpload(client.name, client.records, update, client.loss(reached)), memory

    def stretch(self, batch_loss: float, global_loss: float) -> float:
        """η_b/η of Alg. 1, kept at 0 or more and finite whatever the losses are."""
        factor = 1 + self.lam * (batch_loss - global_loss)
        return max(factor, 0.0) if isfinite(factor) else 0.0

    def aggregate(self, state: FairState, uploads: Iterable[FairUpload]) -> FairState:
        losses = LossMean()
        new: FairState = super().aggregate(state, losses.passing(uploads))
        return replace(new, loss=losses.mean(otherwise=state.loss))


class LossMean:
    """F = Σ p_i F_i, taken while the uploads pass by."""

    def __init__(self) -> None:
        self.total, self.weight = 0.0, 0.0

    def passing(self, uploads: Iterable[FairUpload]) -> Iterator[FairUpload]:
        for upload in uploads:
            self.total += upload.weight * upload.loss
            self.weight += upload.weight
            yield upload

    def mean(self, *, otherwise: float) -> float:
        return self.total / self.weight if self.weight else otherwise


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
