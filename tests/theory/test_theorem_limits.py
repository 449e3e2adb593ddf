"""What no coefficient can mend: a case where Theorem 2 is false for λ > 0, and what Theorem 1 would need."""

import math

import pytest
import sympy as sp
from scipy.optimize import brentq

from fedfdp.theory.bound import derived_bound, printed_bound, printed_domain, step_offset, theorem_coefficients

# Two clients, one record each, p = ½: F_1 = w²/2, F_2 = (w − 1)². Then w* = 2/3, F* = 1/6, F_1* = F_2* = 0.


def losses(w):
    return w * w / 2, (w - 1) ** 2


def fair_gradient(w, lam):
    f1, f2 = losses(w)
    mean = (f1 + f2) / 2
    return ((1 + lam * (f1 - mean)) * w + (1 + lam * (f2 - mean)) * 2 * (w - 1)) / 2


def test_fair_gradient_is_not_zero_at_the_optimum():
    lam = sp.Symbol("lambda")
    assert sp.expand(fair_gradient(sp.Rational(2, 3), lam)) == lam / 27


def test_theorem_is_false_for_two_quadratics(constants):
    """Noise-free, unclipped, started at w*: the loss settles above F*, while both bounds go to 0 like 1/T."""
    lam, rounds = 1.0, 200_000
    gaps, gradients = [], []
    k = constants(L=2.0, mu=1.0, gamma_het=1 / 6, sigma=0.0, distance=0.0, rounds=rounds, G=1.0, clip=1e6)
    offset = step_offset(k)
    w = 2 / 3
    for t in range(1, rounds):
        f1, f2 = losses(w)
        gaps += [(f1 - f2) / 2, (f2 - f1) / 2]
        gradients += [abs(w), abs(2 * (w - 1))]
        w -= 2 / (t + offset) * fair_gradient(w, lam)
    assert max(gradients) <= k.G
    assert w == pytest.approx(brentq(fair_gradient, 0.5, 0.8, args=(lam,)), abs=1e-6)
    excess = sum(losses(w)) / 2 - 1 / 6
    assert excess == pytest.approx(0.75 * (w - 2 / 3) ** 2, rel=1e-9)  # F is a quadratic with F″ = 3/2
    floor, ceiling = 1 + lam * min(gaps), 1 + lam * max(gaps)
    assert excess == pytest.approx(2.77e-4, rel=2e-3)
    assert derived_bound(k, floor=floor, ceiling=ceiling) == pytest.approx(1.175e-4, rel=1e-2)
    assert printed_bound(k, 1.0) == pytest.approx(2.33e-5, rel=2e-3)


@pytest.mark.parametrize("lam", [0.1, 1.0, 5.0])
def test_bias_that_the_proof_leaves_out(lam):
    """‖w_λ − w*‖² ≤ λΨ(w*)/(2μ·least C_t), with Ψ(w*) = (1/18)²: the term the unweighting of C_2 hides."""
    w = brentq(fair_gradient, 0.5, 0.8, args=(lam,))
    f1, f2 = losses(w)
    floor = 1 - lam * abs(f1 - f2) / 2
    assert 0 < (w - 2 / 3) ** 2 <= lam * (1 / 18) ** 2 / (2 * floor)


def theorem_1(k, lam):
    """The simplified rate with every O-constant 1."""
    return (
        k.L * k.G**2 * lam**2 / (k.mu**2 * k.rounds)
        + k.L**2 * k.gamma_het * lam / (k.mu**2 * k.rounds)
        + k.L * k.sigma**2 * k.clip**2 * k.dim / (k.mu**2 * k.rounds * lam)
        + k.L * k.distance / k.rounds
    )


def test_theorem_1_misses_what_is_left_without_noise(constants):
    """σ = 0, λ → 0: Theorem 2 tends to (L/2μ²T)(4G² + 2LΓ), Theorem 1 to 0."""
    k = constants(sigma=0.0, distance=0.0, q0=0.5)
    assert theorem_coefficients(k).P(1e-9) == pytest.approx(2 / 20 * (4 + 4), rel=1e-6)
    assert theorem_1(k, 1e-9) < 1e-8


def test_theorem_1_has_no_pole_where_theorem_2_has(constants):
    k = constants(q0=-0.5)
    end = printed_domain(k)[1]
    ratios = [theorem_coefficients(k).P(end * (1 - gap)) / theorem_1(k, end * (1 - gap)) for gap in (1e-3, 1e-6, 1e-9)]
    assert ratios[2] > 900 * ratios[1] > 900**2 * ratios[0]


def test_theorem_1_is_the_large_lambda_end_for_positive_q0(constants):
    """Q_0 > 0, λ → ∞: the ratio tends to Q_1³/(4·Q_0), so Theorem 1 has the right order there, and there only."""
    k = constants(q0=0.5, q1=2.0)
    assert theorem_coefficients(k).P(1e8) / theorem_1(k, 1e8) == pytest.approx(2.0**3 / (4 * 0.5), rel=1e-6)


def test_one_over_lambda_never_appears_for_negative_q0():
    """With Q_0 ≤ 0 the noise term n/(1 + 2·Q_0·λ) does not fall with λ anywhere in the domain."""
    lam, q, n = sp.symbols("lambda q n", positive=True)  # Q_0 = −q
    slope = sp.simplify(sp.diff(n / (1 - 2 * q * lam), lam))
    assert sp.simplify(slope - 2 * n * q / (1 - 2 * q * lam) ** 2) == 0
    assert math.isclose(float(slope.subs({lam: 0.1, q: 1, n: 1})), 2 / 0.64)
