"""From trials with the canary and trials without to a lower bound on what the mechanism leaks, at a stated confidence.

A quarter of the trials choose the test, the others measure it. Both of its rates are taken at that end of their
Clopper–Pearson interval which is in the mechanism's favour.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedfdp.core.errors import SettingError

CHOOSING = 0.25  # the share of the trials that choose the test
_RANKS = 400  # thresholds tried from each end of what was seen

Numbers = NDArray[np.float64]
World = Mapping[str, Numbers]  # what was seen in every trial, statistic by statistic


class Leak(Protocol):
    """What follows from a test whose "yes" is right at a rate of `least` or more and wrong at one of `most` or less."""

    @property
    def directions(self) -> tuple[bool, ...]:
        """False: "yes" says that the canary was there. True: that it was not."""
        ...

    def __call__(self, least: Numbers, most: Numbers) -> Numbers: ...


@dataclass(frozen=True)
class PureEpsilon:
    """ε from the definition, P(yes) ≤ e^ε·P′(yes) + δ. Assumes nothing of the mechanism."""

    delta: float
    directions: ClassVar[tuple[bool, ...]] = (False, True)

    def __call__(self, least: Numbers, most: Numbers) -> Numbers:
        return np.log(np.maximum(least - self.delta, most) / most)


@dataclass(frozen=True)
class GaussianPrecision:
    """1/σ of a Gaussian of sensitivity 1 with subsampling rate q: P(yes) ≤ (1−q)·P′(yes) + q·Φ(Φ⁻¹(P′(yes)) + 1/σ).

    A claim of some σ states this whole curve, so a larger 1/σ refutes it whatever the mechanism is. The complement of a
    test has the same curve: one direction is enough. ∞ where no σ explains what was seen.
    """

    q: float
    directions: ClassVar[tuple[bool, ...]] = (False,)

    def __call__(self, least: Numbers, most: Numbers) -> Numbers:
        drawn = np.clip((least - (1 - self.q) * most) / self.q, most, 1.0)
        return np.where(drawn > most, special.ndtri(drawn) - special.ndtri(np.minimum(most, 1 - 1e-16)), 0.0)


@dataclass(frozen=True)
class Guess:
    """Says "yes" where the statistic reaches the threshold, from above (side 1) or from below (side −1)."""

    statistic: str
    threshold: float
    side: int
    absent: bool  # "yes" says that the canary was not there

    def yes(self, world: World) -> int:
        return int(np.count_nonzero(self.side * world[self.statistic] >= self.side * self.threshold))


@dataclass(frozen=True)
class Separation:
    """The least leak that explains how well one guess told the two worlds apart."""

    leak: float
    guess: Guess
    right: tuple[int, int]  # how often "yes" was right, of how many
    wrong: tuple[int, int]


def check_confidence(confidence: float) -> None:
    if not 0.5 <= confidence < 1:
        raise SettingError("confidence", confidence, "at least 0.5 and below 1", "0.999 is usual")


def lower_limit(hits: Numbers, trials: int, alpha: float) -> Numbers:
    """Clopper–Pearson: the true rate is below this with probability at most alpha."""
    return np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), trials - hits + 1, alpha), 0.0)


def upper_limit(hits: Numbers, trials: int, alpha: float) -> Numbers:
    """Clopper–Pearson: the true rate is above this with probability at most alpha."""
    return 1 - lower_limit(trials - hits, trials, alpha)


def leak_of_counts(leak: Leak, right: Numbers, wrong: Numbers, trials: tuple[int, int], alpha: float) -> Numbers:
    return leak(lower_limit(right, trials[0], alpha / 2), upper_limit(wrong, trials[1], alpha / 2))


def ceiling(trials: int, leak: Leak, *, confidence: float) -> float:
    """The most that a perfect attack could show in so many trials of each kind."""
    measured = trials - round(CHOOSING * trials)
    perfect = np.array(float(measured)), np.array(0.0)
    return float(leak_of_counts(leak, *perfect, (measured, measured), 1 - confidence))


def separate(inside: World, outside: World, leak: Leak, *, confidence: float) -> Separation:
    """The lower bound on a leak from what was seen with the canary and without it."""
    check_confidence(confidence)
    alpha = 1 - confidence
    first, rest = zip(_split(inside), _split(outside), strict=True)
    guess = max(_candidates(first[0], first[1], leak, alpha), key=lambda scored: scored[0])[1]
    yes, no = (rest[1], rest[0]) if guess.absent else (rest[0], rest[1])
    right, wrong = (guess.yes(yes), len(yes[guess.statistic])), (guess.yes(no), len(no[guess.statistic]))
    shown = leak_of_counts(leak, np.array(right[0]), np.array(wrong[0]), (right[1], wrong[1]), alpha)
    return Separation(float(shown), guess, right, wrong)


def _split(world: World) -> tuple[World, World]:
    cut = {name: round(CHOOSING * len(scores)) for name, scores in world.items()}
    return {n: s[: cut[n]] for n, s in world.items()}, {n: s[cut[n] :] for n, s in world.items()}


def _candidates(inside: World, outside: World, leak: Leak, alpha: float) -> Iterator[tuple[float, Guess]]:
    """The best threshold of every statistic, side and direction, with the leak it shows on these trials."""
    for name in inside:
        for side in (1, -1):
            worlds = [np.sort(side * world[name]) for world in (inside, outside)]
            thresholds = _thresholds(np.sort(np.concatenate(worlds)))
            yes = [len(scores) - np.searchsorted(scores, thresholds).astype(np.float64) for scores in worlds]
            for absent in leak.directions:
                one, other = (1, 0) if absent else (0, 1)
                shown = leak_of_counts(leak, yes[one], yes[other], (len(worlds[one]), len(worlds[other])), alpha)
                best = int(np.median(np.flatnonzero(shown == shown.max())))  # where many are as good, far from the ends
                yield float(shown[best]), Guess(name, side * float(thresholds[best]), side, absent)


def _thresholds(ordered: Numbers) -> Numbers:
    """Half-way between values that were seen, closer to each other towards both ends, where the strong tests are."""
    ranks = np.unique(np.geomspace(1, len(ordered), _RANKS).astype(int)) - 1
    values = np.unique(np.concatenate([ordered[ranks], ordered[len(ordered) - 1 - ranks]]))
    return np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])
