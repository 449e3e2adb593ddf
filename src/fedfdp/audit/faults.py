"""Faults that void the guarantee, each planted in the mechanism of the release game: an audit must find them all.

For the audit's own test only. Nothing that trains imports this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedfdp.algorithms.fedfdp import FDPUpload
from fedfdp.audit.release import ReleaseFinding, ReleaseGame, Trials
from fedfdp.audit.separation import Numbers, World
from fedfdp.audit.spoilt import (
    AsPrinted,
    Faint,
    FixedRecord,
    LessNoise,
    Meeting,
    NeverCleared,
    OneNoise,
    Overflowing,
    Remembering,
    Unclipped,
)
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.models.learner import Learner
from fedfdp.privacy.accounting import epsilon
from fedfdp.privacy.noise.randomness import Randomness


@dataclass(frozen=True)
class TwoRuns(ReleaseGame):
    """Every client is in a second run too, with four times the noise. Noise that both share cancels in 4·u₁ − u₂."""

    @property
    def claimed(self) -> float:
        runs = [self._once(sigma) for sigma in (self.sigma, 4 * self.sigma)]
        return epsilon([event for run in runs for event in run.algorithm.events(None, run.privacy)], self.delta)

    def _once(self, sigma: float) -> ReleaseGame:
        return ReleaseGame(sigma=sigma, q=self.q, clip=self.clip, sigma_loss=self.sigma_loss, delta=self.delta)

    def play(self, trials: Trials) -> tuple[World, World]:
        one = self._once(self.sigma).play(trials)
        other = self._second(Trials(trials.count, trials.randomness, trials.learner))
        with_canary, without = (
            {**first, **dict.fromkeys(("gradient and loss", "gradient"), self._without_noise(first, second))}
            for first, second in zip(one, other, strict=True)
        )
        return with_canary, without

    def _second(self, trials: Trials) -> tuple[World, World]:
        return self._once(4 * self.sigma).play(trials)

    def _without_noise(self, first: World, second: World) -> Numbers:
        return (4 * first["gradient"] - second["gradient"]) / 3


@dataclass(frozen=True)
class Resumed(TwoRuns):
    """The round is repeated, unpaid, with a loss under which the canary hardly counts: u₁ − u₂ has no noise."""

    @property
    def claimed(self) -> float:
        return self._once(self.sigma).claimed

    def _second(self, trials: Trials) -> tuple[World, World]:
        return self._once(self.sigma).play(replace(trials, learner=Faint))

    def _without_noise(self, first: World, second: World) -> Numbers:
        return first["gradient"] - second["gradient"]


@dataclass(frozen=True, kw_only=True)
class Charged(ReleaseGame):
    """All of a client's releases are judged together; `charged` of them are in the claim."""

    charged: int

    @property
    def claimed(self) -> float:
        return epsilon(self.charged * list(self.algorithm.events(None, self.privacy)), self.delta)

    def _judged(self, looks: Sequence[Numbers]) -> Numbers:
        mean: Numbers = np.stack(looks).mean(axis=0)
        return mean


@dataclass(frozen=True)
class Evaluated(ReleaseGame):
    """Instead of the noised loss, the exact loss on the training records is seen, as an evaluation would give it."""

    def _losses(self, engine: LocalEngine, uploads: Sequence[FDPUpload]) -> Numbers:
        pool, learner = engine.federation, engine.learner
        losses, _, _ = learner.judge(learner.initial(), pool.x, pool.y)
        return losses.double().reshape(len(uploads), -1).mean(1).numpy()


@dataclass(frozen=True, kw_only=True)
class OnePerson(ReleaseGame):
    """The canary is a person with several records. `told` says whether the client knows whose they are."""

    records: int = 10
    told: bool = True

    def _federation(self) -> Federation:
        clients = self._clients(self.records)
        whose = ["canary"] * self.records + [f"bystander {i}" for i in range(self.bystanders)]
        units = dict.fromkeys(clients, whose) if self.told else None
        return Federation.from_clients(clients, classes=None, test_fraction=0.0, units=units)


@dataclass(frozen=True)
class Fault:
    """A fault, and the game in which it shows."""

    name: str
    learner: type[Learner] = Learner
    spoil: Callable[[Randomness], Randomness] = lambda source: source
    game: ReleaseGame = field(default_factory=ReleaseGame)

    def audit(self, trials: Trials, *, confidence: float = 0.999) -> ReleaseFinding:
        """What the game shows with the fault planted."""
        spoilt = replace(trials, randomness=self.spoil(trials.randomness), learner=self.learner)
        return self.game.judge(*self.game.play(spoilt), confidence=confidence)


FAULTS = (
    Fault("no noise", spoil=lambda source: LessNoise(source, 0.0)),
    Fault("noise of half the size", spoil=lambda source: LessNoise(source, 0.5)),
    Fault("clipping left out", learner=Unclipped),
    Fault("accumulators not cleared", learner=NeverCleared, game=ReleaseGame(q=1.0, releases=2)),
    Fault("a negative coefficient unclipped", learner=AsPrinted),
    Fault("a fixed record in every batch", spoil=lambda source: FixedRecord(source, 1.0)),
    Fault("a sum that overflows", spoil=lambda source: Overflowing(source, 1.0)),
    Fault("two runs share their noise", spoil=lambda source: OneNoise(0), game=TwoRuns()),
    Fault("a round repeated with another loss, unpaid", spoil=lambda source: OneNoise(0), game=Resumed()),
    Fault("the loss released without noise", spoil=lambda source: LessNoise(source, 0.0, "loss ")),
    Fault("an evaluation on training records", game=Evaluated()),
    Fault("records that meet in the model", learner=Meeting, game=ReleaseGame(q=1.0, bystanders=9)),
    Fault("a record kept for the next batch", learner=Remembering, game=ReleaseGame(bystanders=19, releases=2)),
    Fault("records clipped, persons promised", game=OnePerson(told=False)),
    Fault("four steps at the price of one", game=Charged(q=1.0, delta=0.01, releases=4, charged=1)),
    Fault("two processes, one budget", game=Charged(q=1.0, delta=0.01, releases=2, charged=1)),
    Fault("half of the rounds in the statement", game=Charged(q=1.0, delta=0.01, releases=4, charged=2)),
)
