# ruff: noqa: N802 - A and P are the paper's names
"""Theorem 2: the bound on E[F(w_T)] − F*, as printed and as its own proof yields it, and P(λ), the bound in λ.

Where 2C_t − 1 ≤ 0 the theorem says nothing: the bound there is infinite, never a negative number.
docs/theory.md has the algebra.
"""

import math

from fedfdp.theory.constants import Constants


def printed_A(k: Constants, C_t: float) -> float:
    """A of Theorem 2 as printed."""
    return k.G**2 * C_t * C_t * (C_t + 3) + 2 * k.L * k.gamma_het * C_t + 2 * k.noise


def derived_A(k: Constants, C_t: float) -> float:
    """A as the proof yields it: (1 + C_t)·E[A_2] carries noise too, which the print drops for its C_t part."""
    return k.G**2 * C_t * C_t * (C_t + 3) + 2 * k.L * k.gamma_het * C_t + (2 + C_t) * k.noise


def printed_bound(k: Constants, C_t: float) -> float:
    """Theorem 2 as printed, at t = T."""
    if 2 * C_t <= 1:
        return math.inf
    return k.L / (2 * k.rounds) * (printed_A(k, C_t) / (k.mu**2 * (2 * C_t - 1)) + k.distance)


def step_offset(k: Constants) -> float:
    """γ of the step size η_t = 2/(μ(t + γ)): the smallest with η_1·L ≤ 1 and μ·η_1·(least C_t) ≤ 1 for every λ.

    The print has γ = 0, where its induction fails at t = 1.
    """
    highest_floor = k.clip_ratio if k.q0 > 0 else 1.0
    return 2 * max(k.L / k.mu, highest_floor) - 1


def derived_bound(k: Constants, *, floor: float, ceiling: float) -> float:
    """Theorem 2 as its proof yields it, at t = T, for floor ≤ C_t ≤ ceiling in every round."""
    if 2 * floor <= 1:
        return math.inf
    offset = step_offset(k)
    # β = 2/μ gives β²A/(μβC_t − 1) = 4A/(μ²(2C_t − 1)): the print loses the 4.
    error = 4 * derived_A(k, ceiling) / (k.mu**2 * (2 * floor - 1))
    return k.L / (2 * (k.rounds + offset)) * (error + (offset + 1) * k.distance)


def weight_floor(k: Constants, lam: float) -> float:
    """The least C_t can be: min(1 + Q_0·λ, C/G). The print leaves out C/G, as if nothing were ever clipped."""
    return min(1 + k.q0 * lam, k.clip_ratio)


def weight_ceiling(k: Constants, lam: float) -> float:
    """The most C_t can be, clipped or not."""
    return 1 + k.q1 * lam


def derived_P(k: Constants, lam: float) -> float:
    """P(λ): the derived bound with C_t replaced by what λ guarantees about it."""
    return derived_bound(k, floor=weight_floor(k, lam), ceiling=weight_ceiling(k, lam))


def printed_domain(k: Constants) -> tuple[float, float]:
    """[lo, hi) of λ where 1 + 2·Q_0·λ > 0."""
    return 0.0, (math.inf if k.q0 >= 0 else -1 / (2 * k.q0))


def derived_domain(k: Constants) -> tuple[float, float]:
    """[lo, hi) of λ where 2C_t − 1 > 0 is guaranteed; empty, (0, 0), where clipping can bring C_t to ½."""
    return (0.0, 0.0) if k.clip_ratio <= 0.5 else printed_domain(k)
