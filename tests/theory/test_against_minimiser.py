"""λ* against a derivative-free minimiser in 50-digit decimals: golden section on P, built from A and C_t alone.

In double precision a minimiser finds an argument to half its digits, too few to ask for 1e-8.
"""

import math
import random
from decimal import Decimal, localcontext

import pytest

from fedfdp.theory.bound import Constants
from fedfdp.theory.optimum import derived_optimum, printed_optimum

INVERSE_RATIO = (Decimal(5).sqrt() - 1) / 2
FAST, FULL = 300, 10_000


def shape(k, *, noise_in_c, clipping):
    """P(λ) without its constant factor and summand, from C_t ≤ 1 + Q_1·λ and the least C_t."""
    L, G, gamma, q0, q1, sigma, clip, b_hat = (
        Decimal(x) for x in (k.L, k.G, k.gamma_het, k.q0, k.q1, k.sigma, k.clip, k.b_hat)
    )
    n, ratio = (sigma * clip / b_hat) ** 2 * k.dim, clip / G

    def value(lam):
        c, least = 1 + q1 * lam, 1 + q0 * lam
        if clipping:
            least = min(least, ratio)
        noise = (2 + c) * n if noise_in_c else 2 * n
        return (G * G * c * c * (c + 3) + 2 * L * gamma * c + noise) / (2 * least - 1)

    return value


def golden_section(f, high):
    """The least point of a function on [0, high] that first falls, then rises."""
    low, left, right = Decimal(0), high - INVERSE_RATIO * high, INVERSE_RATIO * high
    f_left, f_right = f(left), f(right)
    while high - low > Decimal("1e-11") * high and high > Decimal("1e-15"):
        if f_left <= f_right:
            high, right, f_right = right, left, f_left
            left = high - INVERSE_RATIO * (high - low)
            f_left = f(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + INVERSE_RATIO * (high - low)
            f_right = f(right)
    return (low + high) / 2 if low > 0 else Decimal(0)


def least(f, q0):
    if q0 < 0:
        return golden_section(f, Decimal("0.5") / -Decimal(q0) * (1 - Decimal("1e-40")))
    high = Decimal(1)
    while f(2 * high) < f(high):
        high *= 2
    return golden_section(f, 2 * high)


def draw(rng, kind):
    """Random constants over many orders of magnitude, steered to where `kind` occurs."""

    def spread(low, high):
        return 10 ** rng.uniform(low, high)

    mu, G = spread(-3, 1), spread(-1, 2)
    some = {
        "mu": mu,
        "L": mu * spread(0, 4),
        "G": G,
        "gamma_het": spread(-3, 2),
        "sigma": spread(-1, 1),
        "dim": int(spread(0, 6)),
        "b_hat": spread(0, 3),
        "distance": spread(-3, 3),
        "rounds": int(spread(0, 4)),
    }
    if kind == "a5 > 0":
        q0 = spread(-4, 1)
        q1, ratio = q0 * spread(0, 1), 1 + spread(-2, 3)
    elif kind == "a5 = 0":
        q0, q1, ratio = 0.0, spread(-4, 1), 0.5 + spread(-2, 2)
    elif kind == "a5 < 0":
        q0, q1, ratio = -spread(-3, 1), spread(-3, 2), 0.5 + spread(-2, 1)
    else:  # every gap negative: an inner minimum needs Γ and the noise to be small
        q0 = -spread(-3, 1)
        q1, ratio = q0 * rng.uniform(0.2, 1), 0.5 + spread(-2, 1)
        some |= {"gamma_het": spread(-6, -1) * G * G / some["L"], "sigma": spread(-4, -1) * some["b_hat"] / 1e3}
    return Constants(**some, q0=q0, q1=q1, clip=ratio * G)


def check(optimum, function, kind, regime, count):
    rng = random.Random(f"{kind} {regime}")
    seen = 0
    with localcontext() as context:
        context.prec = 50
        while seen < count:
            k = draw(rng, kind)
            found = optimum(k)
            if found.regime != regime:
                continue
            seen += 1
            expected = least(function(k), k.q0)
            if regime == "zero":
                assert found.lambda_star == 0
                assert expected < 1e-15
            else:
                assert found.lambda_star > 0
                assert abs(Decimal(found.lambda_star) / expected - 1) < Decimal("1e-8")
                assert found.lambda_star < (math.inf if k.q0 >= 0 else -1 / (2 * k.q0))


def derived_shape(k):
    return shape(k, noise_in_c=True, clipping=True)


def printed_shape(k):
    return shape(k, noise_in_c=False, clipping=False)


CASES = [
    (derived_optimum, derived_shape, "a5 > 0", "interior"),
    (derived_optimum, derived_shape, "a5 > 0", "clipping"),
    (derived_optimum, derived_shape, "a5 > 0", "zero"),
    (derived_optimum, derived_shape, "a5 = 0", "zero"),
    (derived_optimum, derived_shape, "a5 < 0", "zero"),
    (derived_optimum, derived_shape, "gaps < 0", "interior"),
    (derived_optimum, derived_shape, "gaps < 0", "clipping"),
    (derived_optimum, derived_shape, "gaps < 0", "zero"),
    (printed_optimum, printed_shape, "a5 > 0", "interior"),
    (printed_optimum, printed_shape, "a5 > 0", "zero"),
    (printed_optimum, printed_shape, "a5 < 0", "zero"),
    (printed_optimum, printed_shape, "gaps < 0", "interior"),
]


@pytest.mark.parametrize(("optimum", "function", "kind", "regime"), CASES)
def test_some(optimum, function, kind, regime):
    check(optimum, function, kind, regime, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("optimum", "function", "kind", "regime"), CASES)
def test_ten_thousand(optimum, function, kind, regime):
    check(optimum, function, kind, regime, FULL)
