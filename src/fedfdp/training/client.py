"""A client's side of one round: it samples, computes, clips and noises, and keeps count of what it has released.

Whatever a method asks, nothing but noised values comes out of a private batch, and each batch answers once.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.algorithms.base import Batch, LossQuery, Released
from fedfdp.core import ranges
from fedfdp.core.errors import FedFDPError
from fedfdp.core.trees import Inputs
from fedfdp.core.weights import Weights
from fedfdp.data import ClientData
from fedfdp.models.learner import Learner
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.clipping import ClippedSum
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Key, Randomness

log = logging.getLogger("fedfdp.client")


@dataclass(frozen=True)
class Answer:
    """What a private batch gives at some weights. Only the gradient may leave as it is."""

    gradient: Weights  # g̃, noised
    losses: NDArray[np.float64]  # of each unit drawn, not noised
    norms: NDArray[np.floating]  # of each unit drawn, not noised


@dataclass(frozen=True)
class Prefetched:
    """The answer to a question a method has yet to ask: the first batch at these weights with this coefficient."""

    weights: Weights
    coefficient: Coefficient
    answer: Answer

    def answers(self, weights: Weights, coefficient: Coefficient) -> bool:
        return weights is self.weights and coefficient == self.coefficient


class LocalClient:
    """One client in one attempt at one round: what a method's `local` is given."""

    def __init__(
        self,
        data: ClientData,
        learner: Learner,
        *,
        privacy: DPSGD | None,
        randomness: Randomness,
        round: int,
        attempt: int = 0,
        request: str = "",
    ) -> None:
        """`request` is a digest of all that is asked: no two different ones draw the same batch or noise."""
        self.name, self.records, self.privacy = data.name, data.size, privacy
        self.data, self.learner, self.randomness = data, learner, randomness
        self.round, self.attempt, self.request = round, attempt, request
        # Sums are divided by the expected size of a batch: its actual size is private.
        self.expected = privacy.q * data.size if privacy is not None else math.nan
        self.released: list[Event] = []
        self.prefetched: Prefetched | None = None
        self.last_positions: Tensor | None = None
        self._drawn: dict[int, Tensor] = {}
        self._steps = itertools.count()  # over the whole round: no batch and no noise is ever drawn a second time

    @property
    def initial(self) -> Weights:
        """The client's whole model as it was before training, where clients' models differ."""
        assert self.learner.first is not None
        return self.learner.first

    def key(self, purpose: str) -> Key:
        return Key(self.name, self.round, self.attempt, purpose, self.request)

    def noise_key(self, step: int = 0, purpose: str = "noise") -> Key:
        """The key of the noise of a step."""
        return self.key(f"{purpose} {step}")

    def batches(self, *, steps: int | None, epochs: int | None, batch_size: int) -> Iterator[Batch]:
        if self.privacy is not None:
            return (PrivateBatch(self, self.privacy, next(self._steps)) for _ in range(steps or 0))
        wanted = steps if steps is not None else (epochs or 1) * math.ceil(len(self.data.train) / batch_size)
        return (PlainBatch(self, positions, next(self._steps)) for positions in self._minibatches(wanted, batch_size))

    def _minibatches(self, count: int, batch_size: int) -> Iterator[Tensor]:
        """`count` minibatches of shuffled records, reshuffled whenever all were seen."""
        generator, left = torch.Generator(), torch.empty(0, dtype=torch.int64)
        generator.set_state(self.randomness.state(self.key("shuffle")))
        for _ in range(count):
            if not len(left):
                left = torch.randperm(len(self.data.train), generator=generator)
            yield left[:batch_size]
            left = left[batch_size:]

    def poisson(self, step: int) -> Tensor:
        """B_i of a step, drawn once: every record, or person, enters with probability q. Secret, and may be empty."""
        assert self.privacy is not None
        if step not in self._drawn:
            draws = self.randomness.uniform(self.records, self.key(f"batch {step}"))
            self._drawn[step] = torch.from_numpy(np.flatnonzero(draws < self.privacy.q))
        return self._drawn[step]

    def loss(self, weights: Weights) -> float:
        if self.privacy is not None:
            raise FedFDPError("the loss on all records is not private; ask a batch to release it")
        total = 0.0
        for positions in torch.split(torch.arange(len(self.data.train)), 2048):
            total += float(self.learner.losses(weights, *self.data.train.take(positions)).double().sum())
        return total / len(self.data.train)


class PlainBatch:
    """A minibatch without privacy: its mean gradient and mean loss as they are."""

    def __init__(self, client: LocalClient, positions: Tensor, step: int) -> None:
        self.client, self.positions, self.step = client, positions, step

    def release(
        self, weights: Weights, *, coefficient: Coefficient, loss: LossQuery | None = None, count_norms: bool = False
    ) -> Released:
        client, self.client.last_positions = self.client, self.positions
        x, y = client.data.train.take(self.positions)
        with client.learner.randomly(client.randomness, client.key(f"dropout {self.step}")):
            gradient, losses = client.learner.gradient(weights, x, y, coefficient)
            if loss is not None and loss.at is not None:
                losses = client.learner.losses(loss.at(gradient), x, y)
        within = float((losses <= loss.bound).double().mean()) if loss is not None and loss.count else None
        return Released(gradient, float(losses.double().mean()), losses_within=within)


class PrivateBatch:
    """A secret Poisson batch. One call is one event, and every part of its answer is noised."""

    def __init__(self, client: LocalClient, privacy: DPSGD, step: int) -> None:
        self.client, self.privacy, self.step = client, privacy, step
        self.answered = False

    def release(
        self, weights: Weights, *, coefficient: Coefficient, loss: LossQuery | None = None, count_norms: bool = False
    ) -> Released:
        if self.answered:
            raise FedFDPError("a private batch answers once: ask for all of it in one call, or take another batch")
        self.answered = True
        if loss is not None:
            ranges.LOSS_BOUND.check("loss.bound", loss.bound)
        client, counts = self.client, int(count_norms) + int(loss is not None and loss.count)
        client.released.append(self.privacy.event(losses=int(loss is not None), counts=counts))

        client.last_positions = self._positions()
        ready = self._prefetched(weights, coefficient)
        done = ready is not None and (loss is None or loss.at is None)  # no further pass is needed
        chance = partial(client.learner.randomly, client.randomness)
        with nullcontext() if done else chance(client.key(f"dropout {self.step}")):
            answer = ready or self._computed(weights, coefficient)
            losses = answer.losses
            if loss is not None and loss.at is not None:
                there = client.learner.private_losses(loss.at(answer.gradient), *self._records())
                losses = self._by_unit(there).double().numpy(force=True)

        released_loss = losses_within = norms_within = None
        if loss is not None:
            clamped = np.fmin(np.fmax(losses, 0.0), loss.bound)  # NaN counts as 0
            released_loss = self._noised(clamped.sum(), self.privacy.sigma_loss * loss.bound, "loss")
            if loss.count:
                within = int(np.count_nonzero(losses <= loss.bound))
                losses_within = self._noised(within, self.privacy.sigma_count, "losses within")
        if count_norms:
            within = int(np.count_nonzero(answer.norms <= coefficient.clip))
            norms_within = self._noised(within, self.privacy.sigma_count, "norms within")
        return Released(answer.gradient, released_loss, losses_within, norms_within)

    def _positions(self) -> Tensor:
        drawn, persons = self.client.poisson(self.step), self.client.data.train.persons
        return drawn if persons is None else persons.positions(drawn)

    def _records(self) -> tuple[Inputs, Tensor]:
        return self.client.data.train.take(self._positions())

    def _counts(self) -> Tensor | None:
        """How many records each drawn person has; None if the unit of privacy is the record."""
        persons = self.client.data.train.persons
        return None if persons is None else persons.counts[self.client.poisson(self.step)]

    def _by_unit(self, losses: Tensor) -> Tensor:
        """One loss for each unit drawn: the mean over a person's records."""
        counts = self._counts()
        if counts is None:
            return losses
        of_whom = torch.arange(len(counts)).repeat_interleave(counts).to(losses.device)
        return losses.new_zeros(len(counts)).index_add_(0, of_whom, losses) / counts.to(losses.device)

    def _prefetched(self, weights: Weights, coefficient: Coefficient) -> Answer | None:
        """The first batch's answer computed beforehand, if for these weights and this coefficient; given once."""
        if self.step != 0:
            return None
        ready, self.client.prefetched = self.client.prefetched, None
        return ready.answer if ready is not None and ready.answers(weights, coefficient) else None

    def _computed(self, weights: Weights, coefficient: Coefficient) -> Answer:
        total = self._clipped(weights, coefficient)
        noise_gradients_(total.flat[None], total.sensitivity, [self.client], self.step)
        return Answer(Weights(total.shapes, (total.flat,)).typed_as(weights), *unnoised(total))

    def _clipped(self, weights: Weights, coefficient: Coefficient) -> ClippedSum:
        counts = self._counts()
        if counts is not None:
            return self.client.learner.clipped_by_person(weights, *self._records(), coefficient, counts)
        return self.client.learner.clipped(weights, *self._records(), coefficient)

    def _noised(self, value: float, scale: float, purpose: str) -> float:
        client = self.client
        key = client.noise_key(self.step, purpose)
        if not math.isfinite(value):
            log.error("%s, round %s, %s: %s", client.name, client.round, purpose, NOT_FINITE)
            value = 0.0
        return client.randomness.noised(value, key, scale=scale, divisor=client.expected)


# Clipping makes this impossible. Should it happen all the same, only noise leaves: an error, an infinity or no answer
# would tell the coordinator something about the records. The holder finds it in its own log.
NOT_FINITE = "a sum of clipped values was not finite and was replaced by 0; please report this as a fault of fedfdp"


def without_overflow_(sums: Tensor, clients: Sequence[LocalClient]) -> None:
    """The last check before the noise: a row that is not finite becomes that of an empty batch; others stay."""
    if math.isfinite(float(sums.sum())):  # the quickest test of all rows; |entries| ≤ 2³¹ records · ranges.BOUND
        return
    for row, client in zip(sums, clients, strict=True):
        if not bool(row.isfinite().all()):
            log.error("%s, round %s: %s", client.name, client.round, NOT_FINITE)
            row.zero_()


def noise_gradients_(sums: Tensor, sensitivity: float, clients: Sequence[LocalClient], step: int = 0) -> None:
    """g̃_i = (Σ c_j g_j + σC·N(0, I)) / (q·n_i) in place, one row per client; an empty batch releases noise, too."""
    privacy = clients[0].privacy
    assert privacy is not None
    without_overflow_(sums, clients)
    clients[0].randomness.noised_(
        sums,
        [client.noise_key(step) for client in clients],
        scale=privacy.noise * sensitivity,
        divisors=[client.expected for client in clients],
    )


def unnoised(total: ClippedSum) -> tuple[NDArray[np.float64], NDArray[np.floating]]:
    """Losses and norms of the units drawn, for what is counted and clamped before it is noised."""
    return total.losses.numpy(force=True).astype(np.float64), total.norms.numpy(force=True)
