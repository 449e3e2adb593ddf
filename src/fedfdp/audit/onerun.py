"""The bound of an audit in one training run: Steinke, Nasr and Jagielski (2023).

Canaries are in the data or not by independent coin flips; an auditor guesses some of the coins from the result. Knows
nothing of how it was trained.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fedfdp.audit.separation import check_confidence

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # of the canaries that may be guessed


@dataclass(frozen=True)
class Guesses:
    """How many canaries were guessed, how many of them right, and the ε below which no algorithm can be."""

    epsilon: float
    guesses: int
    correct: int


def p_value(correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """At most how likely an (ε, δ)-private algorithm lets `correct` guesses or more be right: their Theorem 5.2.

    With W ~ Binomial(r, e^ε/(1 + e^ε)): P(W ≥ v) + δ·m·max_i (2/i)·P(v − i ≤ W < v).
    """
    chance = stats.binom(guesses, special.expit(epsilon))
    i = np.arange(1, correct + 1)
    below = np.cumsum(chance.pmf(correct - i))
    alpha = float(np.max(2 * below / i, initial=0.0))
    return min(1.0, float(chance.sf(correct - 1)) + delta * canaries * alpha)


def epsilon_lower(correct: int, guesses: int, canaries: int, *, delta: float, confidence: float) -> float:
    """The largest ε, from below to within 1e-6, that so many right guesses refute."""
    check_confidence(confidence)

    def refuted(epsilon: float) -> bool:
        return p_value(correct, guesses, canaries, epsilon=epsilon, delta=delta) < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def planned_share(shift: float, canaries: int, *, delta: float, confidence: float) -> float:
    """The share of the canaries to guess that would show most if a canary moved its score by so many deviations.

    Chosen before anything is seen: to choose by the scores themselves would have to be paid for in confidence.
    """

    def expected(share: float) -> float:
        # Scores are half N(0, 1) and half N(shift, 1): the highest share/2 of them lie above `cut`, by symmetry of both
        # halves as many are right at the low end.
        low, high = -10.0, 10.0 + shift
        while high - low > 1e-6:
            cut = (low + high) / 2
            above = (special.ndtr(-cut) + special.ndtr(shift - cut)) / 2
            low, high = (cut, high) if above > share / 2 else (low, cut)
        right = special.ndtr(shift - low) / (special.ndtr(shift - low) + special.ndtr(-low))
        guesses = 2 * int(share * canaries / 2)
        return epsilon_lower(round(right * guesses), guesses, canaries, delta=delta, confidence=confidence)

    return max(SHARES, key=expected)


def guess(
    scores: NDArray[np.float64], inside: NDArray[np.bool_], *, share: float, delta: float, confidence: float
) -> Guesses:
    """Guesses "in" for the highest scores and "out" for the lowest, as many of each."""
    order, half = np.argsort(scores, kind="stable"), int(share * len(scores) / 2)
    correct = int(inside[order[len(order) - half :]].sum() + (~inside[order[:half]]).sum())
    bound = epsilon_lower(correct, 2 * half, len(scores), delta=delta, confidence=confidence)
    return Guesses(bound, 2 * half, correct)
