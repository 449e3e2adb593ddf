"""Faults that void the guarantee, each planted in the mechanism of the release game: an audit must find them all.

For the audit's own test only. Nothing that trains imports this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfdp import ranges
from fedfdp.fairness.coefficients import Coefficient, PaperClip
from fedfdp.learner import Learner
from fedfdp.privacy.accounting import epsilon
from fedfdp.privacy.audit.release import ReleaseFinding, ReleaseGame
from fedfdp.privacy.audit.separation import World
from fedfdp.privacy.clipping import ClippedSum, clipped_sum
from fedfdp.privacy.randomness import Floats, Key, Randomness, Seeded
from fedfdp.records import Weights

_NO_BOUND = ranges.BOUND.high


@dataclass(frozen=True)
class LessNoise:
    """Noise times a factor, wherever the purpose begins as given."""

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
    """The numbers of a seed whatever is asked: two runs that have it meet the same noise."""

    def _name(self, key: Key) -> bytes:
        return super()._name(key._replace(request=""))


@dataclass(frozen=True)
class TwoRuns(ReleaseGame):
    """Every client in a second run with four times the noise. Noise that both share is taken off by 4·u₁ − u₂."""

    @property
    def claimed(self) -> float:
        runs = [self._once(sigma) for sigma in (self.sigma, 4 * self.sigma)]
        return epsilon([event for run in runs for event in run.algorithm.events(None, run.privacy)], self.delta)

    def _once(self, sigma: float) -> ReleaseGame:
        return ReleaseGame(sigma=sigma, q=self.q, clip=self.clip, sigma_loss=self.sigma_loss, delta=self.delta)

    def play(
        self,
        trials: int,
        randomness: Randomness,
        *,
        learner: type[Learner] = Learner,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> tuple[World, World]:
        one = self._once(self.sigma).play(trials, randomness, learner=learner, on_progress=on_progress)
        other = self._once(4 * self.sigma).play(trials, randomness, learner=learner)
        names = ("gradient and loss", "gradient")
        with_canary, without = (
            {**first, **dict.fromkeys(names, (4 * first["gradient"] - second["gradient"]) / 3)}
            for first, second in zip(one, other, strict=True)
        )
        return with_canary, without


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
        self, weights: Weights, x: Tensor, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
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
        self, weights: Weights, x: Tensor, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
    ) -> ClippedSum:
        total = super().clipped(weights, x, y, coefficient, sizes)
        if self.kept is not None:
            total = replace(total, flat=total.flat + self.kept)
        self.kept = total.flat.clone()
        return total


@dataclass(frozen=True)
class Fault:
    """A fault, and the game in which it shows."""

    name: str
    learner: type[Learner] = Learner
    spoil: Callable[[Randomness], Randomness] = lambda source: source
    game: ReleaseGame = field(default_factory=ReleaseGame)

    def audit(
        self,
        trials: int,
        randomness: Randomness,
        *,
        confidence: float = 0.999,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> ReleaseFinding:
        worlds = self.game.play(trials, self.spoil(randomness), learner=self.learner, on_progress=on_progress)
        return self.game.judge(*worlds, confidence=confidence)


FAULTS = (
    Fault("no noise", spoil=lambda source: LessNoise(source, 0.0)),
    Fault("noise of half the size", spoil=lambda source: LessNoise(source, 0.5)),
    Fault("clipping left out", learner=Unclipped),
    Fault("accumulators not cleared", learner=NeverCleared, game=ReleaseGame(q=1.0, releases=2)),
    Fault("a negative coefficient unclipped", learner=AsPrinted),
    Fault("a fixed record in every batch", spoil=lambda source: FixedRecord(source, 1.0)),
    Fault("a sum that overflows", spoil=lambda source: Overflowing(source, 1.0)),
    Fault("two runs share their noise", spoil=lambda source: OneNoise(0), game=TwoRuns()),
    Fault("the loss released without noise", spoil=lambda source: LessNoise(source, 0.0, "loss ")),
)
