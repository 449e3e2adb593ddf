"""λ* by hand in every regime, what the print claims of G, and the regimes' edges."""

import math
import random

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedfdp.theory.bound import (
    Coefficients,
    Constants,
    derived_coefficients,
    derived_domain,
    derived_P,
    printed_coefficients,
    printed_domain,
)
from fedfdp.theory.cubic import roots
from fedfdp.theory.optimum import clipping_switch, derived_optimum, minimiser, printed_optimum


def test_interior_by_hand(constants):
    """G = 1, Γ = 0, Q_0 = Q_1 = 1, n = 4, c = 1 + λ: (c³ + 3c² + 4c + 8)/(2c − 1) is least at 4c³ + 3c² − 6c = 20."""
    k = constants(gamma_het=0.0, q0=1.0, q1=1.0, sigma=2.0, clip=10.0, b_hat=10.0)
    assert k.noise == 4
    c = max(z.real for z in np.roots([4, 3, -6, -20]) if z.imag == 0)
    found = derived_optimum(k)
    assert (found.regime, found.domain) == ("interior", (0, math.inf))
    assert found.lambda_star == pytest.approx(c - 1, rel=1e-14)
    # The print lacks n·c in A: (c³ + 3c² + 8)/(2c − 1) is least at 4c³ + 3c² − 6c = 16.
    c = max(z.real for z in np.roots([4, 3, -6, -16]) if z.imag == 0)
    assert printed_optimum(k).lambda_star == pytest.approx(c - 1, rel=1e-14)


def test_interior_by_hand_where_every_gap_is_negative(constants):
    """Q_0 = Q_1 = −1, no noise, Γ = 0: (c³ + 3c²)/(2c − 1), c = 1 − λ, is least at 4c² + 3c = 6."""
    k = constants(gamma_het=0.0, q0=-1.0, q1=-1.0, sigma=0.0)
    c = (-3 + math.sqrt(105)) / 8
    for found in (derived_optimum(k), printed_optimum(k)):
        assert (found.regime, found.domain) == ("interior", (0, 0.5))
        assert found.lambda_star == pytest.approx(1 - c, rel=1e-14)


def test_clipping_cuts_the_root_off(constants):
    k = constants(gamma_het=0.0, q0=1.0, q1=1.0, sigma=2.0, clip=1.125, b_hat=1.125)
    found = derived_optimum(k)
    assert (found.regime, found.lambda_star) == ("clipping", 0.125)
    assert printed_optimum(k).lambda_star > 0.25


def test_clipping_pushes_the_optimum_up_where_every_gap_is_negative(constants):
    k = constants(gamma_het=0.0, q0=-1.0, q1=-1.0, sigma=0.0, clip=0.75)
    found = derived_optimum(k)  # C_t ≥ ¾ until λ = ¼, past the root 1 − c = 0.094; A falls with λ
    assert (found.regime, found.lambda_star) == ("clipping", 0.25)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q0": -0.5, "q1": 1.0}, "only for λ < 1: the bound is least at λ = 0"),
        ({"q0": 0.0, "q1": 1.0}, "leaves the least C_t as it is"),
        ({"q0": 0.1, "q1": 1.0}, "a3 ≥ a4·a5"),
        ({"q0": 1.0, "q1": 1.0, "sigma": 9.0, "G": 2.0, "clip": 1.9}, "C/G = 0.95 ≤ 1"),
    ],
)
def test_zero(constants, changes, words):
    found = derived_optimum(constants(**changes))
    assert (found.regime, found.lambda_star) == ("zero", 0.0)
    assert words in found.reason


def test_edge_of_a3_against_a4_a5(constants):
    """G = L = Q_0 = Q_1 = 1, no noise: G(0) = 1 − 2Γ changes its sign at Γ = ½."""
    edge = {"q0": 1.0, "q1": 1.0, "sigma": 0.0, "L": 1.0}  # G(0) = 9 + 2Γ − 2(4 + 2Γ) = 1 − 2Γ
    assert derived_optimum(constants(**edge, gamma_het=0.5)).lambda_star == 0
    assert derived_optimum(constants(**edge, gamma_het=0.499)).regime == "zero"
    slightly = derived_optimum(constants(**edge, gamma_het=0.5 + 2.0**-20))
    assert slightly.regime == "interior"
    assert slightly.lambda_star == pytest.approx(2 * 2.0**-20 / 12, rel=1e-5)  # −G(0)/G′(0), G′(0) = 2·a2 = 12


def test_flat(constants):
    found = derived_optimum(constants(q0=0.0, q1=0.0))
    assert (found.regime, found.lambda_star, found.domain) == ("flat", 0.0, (0, math.inf))


@pytest.mark.parametrize("q0", [-0.5, 0.0, 0.5])
def test_void_in_the_papers_setting(constants, q0):
    """C = 0.1 and norms near 10: C_t near 0.01, 2C_t − 1 negative, nothing to say."""
    found = derived_optimum(constants(clip=0.1, G=10.0, q0=q0))
    assert (found.regime, found.lambda_star, found.domain) == ("void", None, (0, 0))
    assert "C/G = 0.01 ≤ ½" in found.reason


def test_void_begins_at_one_half(constants):
    assert derived_optimum(constants(clip=0.5)).regime == "void"
    assert derived_optimum(constants(clip=0.5001)).regime == "zero"


def random_constants(base, rng, q0, q1):
    return base(
        G=10 ** rng.uniform(-1, 1),
        gamma_het=10 ** rng.uniform(-2, 1),
        sigma=10 ** rng.uniform(-2, 2),
        q0=q0,
        q1=q1,
        clip=1e3,
        b_hat=1e3,
        distance=0.0,
    )


def test_printed_root_lies_outside_the_domain_for_negative_q0(constants):
    """Q_0 < 0 < Q_1: G(0) > 0, G has one positive root, and it is past 1/(2|Q_0|), where the bound does not hold."""
    rng = random.Random(2)
    for _ in range(500):
        k = random_constants(constants, rng, -(10 ** rng.uniform(-2, 1)), 10 ** rng.uniform(-2, 1))
        for c in (printed_coefficients(k), derived_coefficients(k)):
            positive = [z.real for z in np.roots(c.cubic) if abs(z.imag) < 1e-9 * abs(z) and z.real > 0]
            assert c.G(0) > 0
            assert len(positive) == 1
            assert positive[0] > printed_domain(k)[1]
            assert c.F(positive[0]) < 0  # there the "bound" on a loss gap is negative
        assert printed_optimum(k).lambda_star == derived_optimum(k).lambda_star == 0


def test_one_positive_root_for_positive_q0(constants):
    """Q_0 > 0 and a3 < a4·a5: the print is right, by Descartes' rule and not by the product of the roots."""
    rng = random.Random(4)
    seen = 0
    while seen < 300:
        q0 = 10 ** rng.uniform(-2, 1)
        k = random_constants(constants, rng, q0, q0 * 10 ** rng.uniform(0, 1))
        c = printed_coefficients(k)
        if c.G(0) >= 0:
            continue
        seen += 1
        found = np.roots(c.cubic)
        positive = [z.real for z in found if abs(z.imag) < 1e-9 * abs(z) and z.real > 0]
        assert len(positive) == 1
        assert np.prod(found).real == pytest.approx(-c.G(0) / (2 * c.a1 * c.a5), rel=1e-9)
        assert printed_optimum(k).lambda_star == pytest.approx(positive[0], rel=1e-8)


def test_positive_product_does_not_mean_one_positive_root():
    """(λ − 1)(λ − 2)(λ − 3) has the product 6: a positive product alone allows three positive roots."""
    # 2·a1·a5 = 1, 3·a1 + a2·a5 = −6, 2·a2 = 11 → a2 = 5.5, a1·(2·a5) = 1, 3·a1² + 6·a1 + 2.75 = 0
    a1 = (-6 + math.sqrt(36 - 33)) / 6
    c = Coefficients(scale=1.0, a1=a1, a2=5.5, a3=-6.0, a4=0.0, a5=1 / (2 * a1))
    assert sorted(z.real for z in roots(c)) == pytest.approx([1, 2, 3], rel=1e-12)


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (-1, -1)])
def test_g_rises_on_the_whole_domain(constants, signs):
    """The print's G′ > 0 holds wherever the bound does, for any sign of Q_0; for Q_0 < 0 it fails past the domain."""
    rng = random.Random(8)
    for _ in range(200):
        low, high = sorted((signs[0] * 10 ** rng.uniform(-2, 1), signs[1] * 10 ** rng.uniform(-2, 1)))
        k = random_constants(constants, rng, low, high)
        c, end = derived_coefficients(k), min(derived_domain(k)[1], 1e3)
        assert all(c.dG(end * i / 100) > 0 for i in range(100))
        if low < 0 < high:
            assert c.dG(1.5 * end) < 0


def test_quadratic_when_a5_is_zero():
    c = Coefficients(scale=1.0, a1=1.0, a2=2.0, a3=-7.0, a4=5.0, a5=0.0)  # G = 3λ² + 4λ − 7
    assert minimiser(c, lower=0.0, upper=math.inf) == pytest.approx(1.0, rel=1e-15)
    assert minimiser(c, lower=0.0, upper=0.75) == 0.75
    assert minimiser(c, lower=2.0, upper=3.0) == 2.0


def test_against_scipy(constants):
    for changes in ({"q0": 1.0, "q1": 1.2, "clip": 9.0}, {"q0": 1.0, "q1": 1.0, "clip": 1.2}, {"q0": -0.2}):
        k = constants(sigma=5.0, **changes)
        end = min(50.0, derived_domain(k)[1])
        best = minimize_scalar(
            lambda x, k=k: derived_P(k, x), bounds=(0, end), method="bounded", options={"xatol": 1e-10}
        )
        assert derived_optimum(k).lambda_star == pytest.approx(best.x, rel=1e-6, abs=1e-8)
        assert derived_P(k, derived_optimum(k).lambda_star) <= best.fun


def test_newton_mends_the_closed_form(constants):
    """Printed coefficients with Q_1/Q_0 = 10⁶: rounding alone costs the closed form half its digits."""
    c = printed_coefficients(constants(q0=1.0, q1=1e6, sigma=1e4, gamma_het=0.0, distance=0.0))
    with mpmath.workdps(40):
        exact = max(mpmath.polyroots(c.cubic, maxsteps=500, extraprec=400), key=lambda z: z.real).real
        closed = max(z.real for z in roots(c))
        assert abs(closed / exact - 1) > 1e-8
        assert abs(minimiser(c, lower=0.0, upper=math.inf) / exact - 1) < 1e-15


size = st.floats(1e-30, 1e30)
signed = st.floats(-1e30, 1e30)


@given(st.tuples(size, size), size, size, st.tuples(signed, signed), size, size, size)
def test_every_admissible_set_gets_an_answer_inside_its_domain(curves, grad, gamma, gaps, sigma, clip, b_hat):
    k = Constants(
        L=max(curves),
        mu=min(curves),
        G=grad,
        gamma_het=gamma,
        q0=min(gaps),
        q1=max(gaps),
        sigma=sigma,
        clip=clip,
        dim=1000,
        b_hat=b_hat,
        distance=1.0,
        rounds=10,
    )
    found = derived_optimum(k)
    low, high = found.domain
    if found.regime == "void":
        assert clip / grad <= 0.5
    else:
        assert low <= found.lambda_star < high
        assert found.regime != "clipping" or found.lambda_star == clipping_switch(k)
