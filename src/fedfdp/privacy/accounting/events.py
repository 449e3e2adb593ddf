"""What a client pays for: one event per Poisson batch, with everything that is released from that batch inside it.

Nothing here computes ε; and no event can be built that is not differentially private.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from fedfdp.core.errors import SettingError

Adjacency = Literal["zero-out", "replace-one"]

# (q, effective σ, how often): a multiset of events, sorted. Equal spending has equal histories, whoever spent it.
History = tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Event:
    """One Poisson batch of rate q, and the noise multipliers of every Gaussian released from it, `count` times over.

    Given the batch, adaptively composed Gaussians are one Gaussian of σ_eff = (Σ σ⁻²)^(−1/2); that one is subsampled
    once. Subsampling each of them on its own and adding the costs up would under-count: they share the batch.
    """

    q: float  # the probability with which a record is in the batch
    sigmas: tuple[float, ...]  # noise over sensitivity, one for each released value
    count: int = 1  # how many such batches

    def __post_init__(self) -> None:
        check_rate(self.q)
        if not self.sigmas:
            raise SettingError("sigmas", self.sigmas, "an event releases at least one noised value")
        for sigma in self.sigmas:
            check_sigma("sigma", sigma)
        check_count("count", self.count)

    @property
    def sigma_effective(self) -> float:
        return effective_sigma(self.sigmas)


def effective_sigma(sigmas: Iterable[float]) -> float:
    """(Σ σ⁻²)^(−1/2). fsum is exactly rounded, so the order of the releases does not matter to the last bit."""
    return 1 / math.sqrt(math.fsum(sigma**-2 for sigma in sigmas))


def repeat(events: Iterable[Event], times: int) -> tuple[Event, ...]:
    return tuple(replace(event, count=event.count * times) for event in events) if times else ()


def history_of(events: Iterable[Event]) -> History:
    """Equal events counted together."""
    return merge((event.q, event.sigma_effective, event.count) for event in events)


def merge(*parts: Iterable[tuple[float, float, int]]) -> History:
    counts: dict[tuple[float, float], int] = {}
    for part in parts:
        for q, sigma, count in part:
            counts[q, sigma] = counts.get((q, sigma), 0) + count
    return tuple((q, sigma, count) for (q, sigma), count in sorted(counts.items()) if count)


def scale(history: History, times: int) -> History:
    return tuple((q, sigma, count * times) for q, sigma, count in history) if times else ()


def contains(whole: History, part: History) -> bool:
    """Whether nothing in part is more often than in whole."""
    counts = {(q, sigma): count for q, sigma, count in whole}
    return all(count <= counts.get((q, sigma), 0) for q, sigma, count in part)


def bucket(history: History, limit: int) -> History:
    """The same history with at most `limit` different events, never a cheaper one: q rounded up, σ rounded down."""
    step = 1e-3
    rounded = history
    while len(rounded) > limit:
        rounded = merge(
            (
                min(1.0, math.exp(math.ceil(math.log(q) / step) * step)),
                math.exp(math.floor(math.log(sigma) / step) * step),
                count,
            )
            for q, sigma, count in history
        )
        step *= 2
    return rounded


def delta_warning(delta: float, n: int) -> str | None:
    """Why a δ of 1/n or more protects nobody, or None."""
    check_delta(delta)
    if delta * n < 1:
        return None
    return (
        f"delta = {delta:g} is not below 1/n = {1 / n:.2g} (n = {n} records): such a guarantee would allow publishing "
        f"one record outright; choose delta well below 1/n"
    )


def check_rate(q: float) -> None:
    if not 0 < q <= 1:
        raise SettingError("q", q, "the sampling rate is above 0 and at most 1")


def check_sigma(setting: str, sigma: float) -> None:
    if not (1e-100 < sigma < 1e100):
        fix = "train without privacy instead if no noise is meant" if sigma == 0 else ""
        raise SettingError(setting, sigma, "a noise multiplier is a finite number above 0", fix)


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SettingError("delta", delta, "above 0 and below 1", "well below 1/n, for example 1e-5")


def check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise SettingError("epsilon", epsilon, "a privacy budget is a finite number above 0")


def check_count(setting: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(setting, count, "a whole number of at least 1")
