"""Searches for the edge of a budget. Both hand back only a value whose cost was computed and found affordable."""

import math
from collections.abc import Callable


def largest(cost: Callable[[int], float], budget: float, *, fits: int, most: int) -> int:
    """The largest whole n up to `most` with cost(n) ≤ budget, where `fits` does (0 always does) and cost rises with n.

    Unless it is `most`, n + 1 was found to be over the budget.
    """
    low, high = fits, max(fits + 1, math.ceil(fits * 1.25))
    low_cost = cost(low) if low else 0.0
    while (high_cost := cost(high)) <= budget:
        if high >= most:
            return most
        low, low_cost, high = high, high_cost, high * 2
    halve = False
    while high - low > 1:
        if halve or not math.isfinite(high_cost):
            middle = (low + high) // 2
        else:  # cost is nearly straight over short ranges: aim at the budget
            middle = low + round((high - low) * (budget - low_cost) / (high_cost - low_cost))
            middle = min(max(middle, low + 1), high - 1)
        before = high - low
        if (middle_cost := cost(middle)) <= budget:
            low, low_cost = middle, middle_cost
        else:
            high, high_cost = middle, middle_cost
        halve = high - low > before / 2
    return low


def approach(
    cost: Callable[[float], float], budget: float, *, safe: float, end: float, first: float, tolerance: float
) -> float:
    """From an affordable value towards `end`, as far as the budget goes, to within a relative tolerance; `first` is
    tried first. Cost is close to a power of the value: straight lines in logarithms, halved where they stall."""
    log_safe, log_end, trial = math.log(safe), math.log(end), math.log(first)
    safe_cost, stride = cost(safe), trial - log_safe
    while True:  # out to the first value that is too much
        value = end if trial == log_end else math.exp(trial)
        if (over_cost := cost(value)) > budget:
            log_over = trial
            break
        safe, log_safe, safe_cost = value, trial, over_cost
        if value == end:
            return end
        stride *= 2
        trial = min(log_safe + stride, log_end) if stride > 0 else max(log_safe + stride, log_end)
    halve = False
    while (gap := abs(log_over - log_safe)) > tolerance:
        share = 0.5
        if not halve and 0 < safe_cost < over_cost < math.inf:
            share = math.log(budget / safe_cost) / math.log(over_cost / safe_cost)
        nudge = tolerance / gap / 2  # past the edge, so that the last trial closes the gap
        trial = log_safe + (log_over - log_safe) * min(max(share, nudge), 1 - nudge)
        if (trial_cost := cost(math.exp(trial))) <= budget:
            safe, log_safe, safe_cost = math.exp(trial), trial, trial_cost
        else:
            log_over, over_cost = trial, trial_cost
        halve = abs(log_over - log_safe) > gap / 2
    return safe


def round_away(value: float, *, upward: bool) -> float:
    """To five significant digits, in the given direction only."""
    digits = 4 - math.floor(math.log10(value))
    scaled = value * 10.0**digits
    return (math.ceil(scaled) if upward else math.floor(scaled)) / 10.0**digits
