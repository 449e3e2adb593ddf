"""λ*: where the bound is least on its domain, and in which regime the constants are.

Never returns a root of G that lies outside the domain: there it is no minimum of anything.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from fedfdp.theory.bound import (
    Coefficients,
    Constants,
    derived_coefficients,
    derived_domain,
    printed_coefficients,
    printed_domain,
)
from fedfdp.theory.cubic import roots

Regime = Literal["void", "flat", "zero", "interior", "clipping"]


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """λ* and what it rests on. `domain` is [lo, hi); where the bound is void it is empty and λ* is None."""

    lambda_star: float | None
    regime: Regime
    reason: str
    domain: tuple[float, float]


def clipping_switch(k: Constants) -> float:
    """The λ at which 1 + Q_0·λ meets C/G and the least C_t passes from one to the other; 0 where they never meet."""
    return max(0.0, (k.clip_ratio - 1) / k.q0) if k.q0 != 0 else 0.0


def minimiser(c: Coefficients, *, lower: float, upper: float) -> float:
    """Where F is least between `lower` and `upper`, ends included; G must rise in between.

    It does for every set that comes from `Constants`, since G′ = 2(3·a1·λ + a2)(a5·λ + 1).
    """
    if c.G(lower) >= 0:
        return lower
    high = upper if math.isfinite(upper) else lower + 1.0
    while high < upper and c.G(high) <= 0:
        high *= 2
    if c.G(high) <= 0:
        return upper
    inside = [z.real for z in roots(c) if abs(z.imag) <= 1e-6 * abs(z) and lower < z.real < high]
    return _polish(c, max(inside, default=(lower + high) / 2), lower, high)


def _polish(c: Coefficients, x: float, low: float, high: float) -> float:
    """Newton from the closed form, kept in its bracket: a large Q_1/Q_0 costs the closed form half its digits."""
    for _ in range(200):
        value = c.G(x)
        low, high = (x, high) if value < 0 else (low, x)
        slope = c.dG(x)
        newton = x - value / slope if slope > 0 else low
        following = newton if low < newton < high else (low + high) / 2
        if abs(following - x) <= 2e-16 * x:
            return following
        x = following
    return x


def printed_optimum(k: Constants) -> Optimum:
    """λ* of the printed coefficients, which take C_t ≥ 1 + Q_0·λ for granted, as if nothing were clipped."""
    lower, upper = domain = printed_domain(k)
    if k.q0 == k.q1 == 0:
        return _flat(domain)
    best = minimiser(printed_coefficients(_without_distance(k)), lower=lower, upper=upper)
    return _interior(best, domain) if best > 0 else _zero(domain, _why_printed_zero(k))


def derived_optimum(k: Constants) -> Optimum:
    """λ* of the bound as its proof yields it, clipping included."""
    lower, upper = domain = derived_domain(k)
    if upper == 0:
        return _void(k, domain)
    if k.q0 == k.q1 == 0:
        return _flat(domain)
    # Where C/G is the least C_t, P moves with A alone: up for Q_1 > 0, down for Q_1 < 0. The rest is F's.
    switch = clipping_switch(k)
    if k.q0 > 0:
        upper = switch
    elif k.q1 < 0:
        lower = switch
    best = minimiser(derived_coefficients(_without_distance(k)), lower=lower, upper=upper)
    if best == 0:
        return _zero(domain, _why_derived_zero(k))
    return _clipping(k, best, domain) if best == switch else _interior(best, domain)


def _without_distance(k: Constants) -> Constants:
    """The distance adds a constant to F and nothing to G: leaving it out spares a3 − a4·a5 the rounding."""
    return replace(k, distance=0.0)


def _void(k: Constants, domain: tuple[float, float]) -> Optimum:
    reason = (
        f"clipping may scale a gradient by as little as C/G = {k.clip_ratio:.3g} ≤ ½, so 2C_t − 1 may be 0 or less "
        "whatever λ is: the theorem says nothing, and there is no λ* to give"
    )
    return Optimum(lambda_star=None, regime="void", reason=reason, domain=domain)


def _flat(domain: tuple[float, float]) -> Optimum:
    reason = "Q_0 = Q_1 = 0: every record has the average loss, and λ changes nothing; 0 is as good as any"
    return Optimum(lambda_star=0.0, regime="flat", reason=reason, domain=domain)


def _interior(best: float, domain: tuple[float, float]) -> Optimum:
    reason = "a3 < a4·a5: the bound falls from λ = 0 to the one root of G in the domain and rises after it"
    return Optimum(lambda_star=best, regime="interior", reason=reason, domain=domain)


def _clipping(k: Constants, best: float, domain: tuple[float, float]) -> Optimum:
    reason = (
        f"the bound falls until 1 + Q_0·λ meets C/G = {k.clip_ratio:.4g} and rises from there: "
        "λ* is where λ and clipping change places in the least C_t, not a root of G"
    )
    return Optimum(lambda_star=best, regime="clipping", reason=reason, domain=domain)


def _zero(domain: tuple[float, float], why: str) -> Optimum:
    return Optimum(lambda_star=0.0, regime="zero", reason=f"{why}: the bound is least at λ = 0", domain=domain)


def _why_printed_zero(k: Constants) -> str:
    if k.q0 < 0:
        return (
            "some records are easier than the average (Q_0 < 0), so λ lowers the least C_t and the bound holds only "
            f"for λ < {-1 / (2 * k.q0):.4g}"
        )
    if k.q0 == 0:
        return "Q_0 = 0, so λ raises A and leaves the least C_t as it is"
    return "a3 ≥ a4·a5, so A grows faster with λ than 2C_t − 1 does"


def _why_derived_zero(k: Constants) -> str:
    if k.q0 > 0 and clipping_switch(k) == 0:
        return f"clipping may scale a gradient by C/G = {k.clip_ratio:.3g} ≤ 1, so λ raises A and not the least C_t"
    return _why_printed_zero(k)
