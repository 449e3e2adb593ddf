"""Parts of the mechanism with a fault in them: sources of randomness, and learners that clip wrongly or not at all.

For the audit's own test only. Nothing that trains imports this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedfdp.core import ranges
from fedfdp.core.records import Weights
from fedfdp.core.trees import Inputs
from fedfdp.fairness.coefficients import PaperClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import LossFunction
from fedfdp.privacy.clipping import ClippedSum, clipped_sum
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.noise.randomness import Floats, Key, Randomness, Seeded

_NO_BOUND = ranges.BOUND.high


@dataclass(frozen=True)
class LessNoise:
    """Noise times a factor, for every purpose that begins with `purpose`."""

    source: Randomness
    factor: float
    purpose: str = ""

    @property
    def repeatable(self) -> bool:
        return self.source.repeatable

    def uniform(self, count: int, key: Key) -> Floats:
        return self.source.uniform(count, key)

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        return self.source.noised_(sums, keys, scale=scale * self._factor(keys[0]), divisors=divisors)

    def noised(self, value: float, key: Key, *, scale: float, divisor: float) -> float:
        return self.source.noised(value, key, scale=scale * self._factor(key), divisor=divisor)

    def _factor(self, key: Key) -> float:
        return self.factor if key.purpose.startswith(self.purpose) else 1.0

    def state(self, key: Key) -> Tensor:
        return self.source.state(key)


@dataclass(frozen=True)
class OneNoise(Seeded):
    """Numbers that depend on the seed and not on the request: two runs with one seed get the same noise."""

    def _name(self, key: Key) -> bytes:
        return super()._name(key._replace(request=""))


@dataclass(frozen=True)
class FixedRecord(LessNoise):
    """A client's first record is in every batch."""

    def uniform(self, count: int, key: Key) -> Floats:
        draws = self.source.uniform(count, key)
        draws[0] = 0.0
        return draws


@dataclass(frozen=True)
class Overflowing(LessNoise):
    """A bound so large that a record's part of the sum is infinite, and stays so whatever noise is added."""

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        large = sums * 1e38 * 1e3
        noised = self.source.noised_(sums, keys, scale=scale, divisors=divisors)
        return noised.copy_(large.where(large.isinf(), noised))


class Unclipped(Learner):
    """Sums gradients as they are; the noise is still scaled by C."""

    def clipped(
        self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
    ) -> ClippedSum:
        model = self.load(weights).train()
        wanted = self.coefficient(coefficient)
        total = clipped_sum(model, self.loss_fn, x, y, clip=_NO_BOUND, coefficient=wanted, sizes=sizes)
        return replace(total, sensitivity=coefficient.clip)

    def coefficient(self, meant: Coefficient) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda loss, norm: torch.ones_like(norm)


class AsPrinted(Unclipped):
    """Eq. 15 as printed, min(s, C/‖g‖): nothing bounds a negative s."""

    def coefficient(self, meant: Coefficient) -> Callable[[Tensor, Tensor], Tensor]:
        assert isinstance(meant, PaperClip)
        return lambda loss, norm: torch.minimum(1 + meant.lam * (loss - meant.reference), meant.clip / norm)


class NeverCleared(Learner):
    """Adds every sum to those of the releases before it."""

    kept: Tensor | None = None

    def clipped(
        self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
    ) -> ClippedSum:
        total = super().clipped(weights, x, y, coefficient, sizes)
        if self.kept is not None:
            total = replace(total, flat=total.flat + self.kept)
        self.kept = total.flat.clone()
        return total


class Meeting(Learner):
    """Records meet in the model: each gradient is computed on the batch's hardest record, then clipped by itself."""

    def clipped(
        self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
    ) -> ClippedSum:
        assert isinstance(x, Tensor)
        batches = list(zip(*(torch.split(of_all, sizes or [len(x)]) for of_all in (x, y)), strict=True))
        hardest = self.hardest([x[y.argmax()] if len(y) else None for x, y in batches])
        both = zip(batches, hardest, strict=True)
        x = torch.cat([x if hard is None else hard.expand_as(x) for (x, _), hard in both])
        return super().clipped(weights, x, y, coefficient, sizes)

    def hardest(self, now: list[Tensor | None]) -> list[Tensor | None]:
        """The record that a client's others are computed on."""
        return now


class Remembering(Meeting):
    """The model keeps a batch's hardest record, and computes the next batch on it."""

    kept: list[Tensor | None] | None = None  # of each client: all of them go through in one pass

    def hardest(self, now: list[Tensor | None]) -> list[Tensor | None]:
        before, self.kept = self.kept or [None] * len(now), now
        return before


class Faint(Learner):
    """The same model with a millionth of the loss: hardly a gradient is left."""

    def __init__(self, model: torch.nn.Module, loss_fn: LossFunction) -> None:
        super().__init__(model, lambda output, y: 1e-6 * loss_fn(output, y))
