"""A client's side of a round as a method sees it: what it may ask of a client, and how far the round has come.

Only descriptions: batches are drawn and answered in `training/client.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol

from fedfdp.algorithms.record_types import MemoryT, MessageT
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class LossQuery:
    """The batch's mean loss, each clamped to [0, bound]: at the same weights, or at what `at` makes of the gradient.

    With `count`, also the fraction of the losses that lie within the bound.
    """

    bound: float
    count: bool = False
    at: Callable[[Weights], Weights] | None = None


@dataclass(frozen=True)
class Released:
    """What came out of one batch: a mean gradient; where asked for, a mean loss and the fractions within the bounds."""

    gradient: Weights
    loss: float | None = None
    losses_within: float | None = None
    norms_within: float | None = None


class Batch(Protocol):
    """One batch of a client's records. A private one is secret and answers once."""

    def release(
        self,
        weights: Weights,
        *,
        coefficient: Coefficient,
        loss: LossQuery | None = None,
        count_norms: bool = False,
    ) -> Released:
        """All that leaves this batch, in one call. Under privacy it is one event, every part of it noised.

        A batch without privacy always tells its mean loss.
        """
        ...


class Client(Protocol):
    """What a method may ask of a client in one round."""

    name: str
    records: int
    privacy: DPSGD | None

    @property
    def initial(self) -> Weights:
        """The client's whole model as it was before training, where clients' models differ."""
        ...

    def batches(self, *, steps: int | None, epochs: int | None, batch_size: int) -> Iterator[Batch]:
        """`steps` batches, or `epochs` passes; Poisson-sampled under privacy, shuffled minibatches otherwise."""
        ...

    def loss(self, weights: Weights) -> float:
        """The mean loss on all of the client's records; only without privacy."""
        ...


@dataclass(frozen=True)
class Question:
    """What one batch of a round is asked beside its gradient. Under privacy all of it is one joint event."""

    loss_bound: float | None = None  # C_l: the mean loss, each clamped to [0, C_l]; None: no loss
    losses_within: bool = False  # also the fraction of the losses within C_l
    norms_within: bool = False  # also the fraction of the gradients within C
    batch: Literal["first", "last"] = "first"  # "last": its loss after a step along its gradient


@dataclass
class LocalRound(Generic[MessageT, MemoryT]):
    """One client's round while it goes on: what the hooks of a method are told."""

    broadcast: MessageT
    before: MemoryT  # what the client remembered when the round began
    client: Client
    rate: float  # η of the round
    steps: int  # K, the steps of the round
    step: int = 0  # which of them this is, from 0
    origin: Weights = None  # type: ignore[assignment]  # where the steps start; None: at the broadcast weights
    second_pass: bool = False  # whether these are the steps of a method's second pass
    weights: Weights = field(init=False)  # w at the start of this step; in step 0 the object that it starts from
    memory: MemoryT = field(init=False)  # what the client will remember; `direction` may put another in its place
    loss: float = float("nan")  # what the batch that was asked a Question released; NaN where no loss was
    losses_within: float | None = None
    norms_within: float | None = None

    def __post_init__(self) -> None:
        self.origin = self.broadcast.weights if self.origin is None else self.origin
        self.weights, self.memory = self.origin, self.before

    def ask(self, batch: Batch, question: Question, coefficient: Coefficient) -> Released:
        """What the batch answers to the question, which the hooks can then read here."""
        query, here, rate = None, self.weights, self.rate
        if question.loss_bound is not None:
            after = None if question.batch == "first" else lambda gradient: w.add(here, gradient, scale=-rate)
            query = LossQuery(question.loss_bound, count=question.losses_within, at=after)
        told = batch.release(here, coefficient=coefficient, loss=query, count_norms=question.norms_within)
        self.loss = self.loss if told.loss is None else told.loss
        self.losses_within, self.norms_within = told.losses_within, told.norms_within
        return told
