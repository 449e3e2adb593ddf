"""Every coefficient re-derived by computer algebra from the bound, and the print's differences pinned down."""

import random
from dataclasses import asdict, replace

import pytest
import sympy as sp
from scipy.differentiate import derivative

from fedfdp.theory.bound import (
    Coefficients,
    derived_coefficients,
    derived_P,
    printed_bound,
    printed_coefficients,
    step_offset,
    theorem_coefficients,
)
from fedfdp.theory.optimum import clipping_switch

L, mu, G, Gam, n, D, T, gam = sp.symbols("L mu G Gamma n D T gamma", positive=True)
Q0, Q1, lam = sp.symbols("Q0 Q1 lambda", real=True)
a1, a2, a3, a4, a5 = sp.symbols("a1:6", real=True)
NAMES = ("a1", "a2", "a3", "a4", "a5")


def expanded(bound, scale):
    """a1 … a4 of bound = scale·(a1·λ³ + a2·λ² + a3·λ + a4)/(2·Q_0·λ + 1)."""
    numerator = sp.Poly(sp.simplify(bound / scale * (2 * Q0 * lam + 1)), lam)
    return [numerator.coeff_monomial(lam**power) for power in (3, 2, 1, 0)]


def of_theorem():
    c = 1 + Q1 * lam
    A = G**2 * c**3 + 3 * G**2 * c**2 + 2 * L * Gam * c + 2 * n
    return L / (2 * T) * (A / (mu**2 * (1 + 2 * Q0 * lam)) + D)


def of_proof():
    c = 1 + Q1 * lam
    A = G**2 * c**3 + 3 * G**2 * c**2 + 2 * L * Gam * c + (2 + c) * n
    return L / (2 * (T + gam)) * (4 * A / (mu**2 * (1 + 2 * Q0 * lam)) + (gam + 1) * D)


def test_theorem_coefficients_by_algebra():
    derived = expanded(of_theorem(), L / (2 * mu**2 * T))
    written = [
        G**2 * Q1**3,
        6 * G**2 * Q1**2,
        9 * G**2 * Q1 + 2 * L * Gam * Q1 + 2 * mu**2 * Q0 * D,
        4 * G**2 + 2 * L * Gam + 2 * n + mu**2 * D,
    ]
    assert [sp.expand(x - y) for x, y in zip(derived, written, strict=True)] == [0, 0, 0, 0]


def test_derived_coefficients_by_algebra():
    derived = expanded(of_proof(), 2 * L / (mu**2 * (T + gam)))
    h = mu**2 * (gam + 1) / 4
    written = [
        G**2 * Q1**3,
        6 * G**2 * Q1**2,
        (9 * G**2 + 2 * L * Gam + n) * Q1 + 2 * h * Q0 * D,
        4 * G**2 + 2 * L * Gam + 3 * n + h * D,
    ]
    assert [sp.expand(x - y) for x, y in zip(derived, written, strict=True)] == [0, 0, 0, 0]


def random_constants(base, rng):
    strong = 10 ** rng.uniform(-2, 1)
    low = rng.uniform(-2, 2)
    return base(
        mu=strong,
        L=strong * 10 ** rng.uniform(0, 2),
        G=10 ** rng.uniform(-1, 1),
        gamma_het=10 ** rng.uniform(-2, 1),
        q0=low,
        q1=low + rng.uniform(0, 2),
        sigma=rng.uniform(0, 3),
        clip=10 ** rng.uniform(-1, 2),
        dim=rng.randint(1, 1000),
        b_hat=10 ** rng.uniform(0, 2),
        distance=10 ** rng.uniform(-1, 2),
        rounds=rng.randint(1, 1000),
    )


@pytest.mark.parametrize(
    ("function", "bound", "scale"),
    [
        (theorem_coefficients, of_theorem, L / (2 * mu**2 * T)),
        (derived_coefficients, of_proof, 2 * L / (mu**2 * (T + gam))),
    ],
)
def test_code_against_algebra(constants, function, bound, scale):
    numeric = sp.lambdify((L, mu, G, Gam, n, D, T, gam, Q0, Q1), [scale, *expanded(bound(), scale), 2 * Q0])
    rng = random.Random(5)
    for _ in range(200):
        k = random_constants(constants, rng)
        noise = k.sigma**2 * k.clip**2 * k.dim / k.b_hat**2
        expected = numeric(k.L, k.mu, k.G, k.gamma_het, noise, k.distance, k.rounds, step_offset(k), k.q0, k.q1)
        assert list(asdict(function(k)).values()) == pytest.approx(expected, rel=1e-11, abs=1e-11)


def test_print_by_hand(constants):
    k = constants(mu=0.5, q0=0.25, q1=2.0, distance=3.0)
    assert asdict(printed_coefficients(k)) == pytest.approx(
        {"scale": 0.2, "a1": 8, "a2": 24, "a3": 18 + 8 + 1.5, "a4": 4 + 4 + 2 + 3, "a5": 0.5}, rel=1e-15
    )
    assert asdict(theorem_coefficients(k)) == pytest.approx(
        {"scale": 0.4, "a1": 8, "a2": 24, "a3": 18 + 8 + 0.375, "a4": 4 + 4 + 2 + 0.75, "a5": 0.5}, rel=1e-15
    )
    # γ + 1 = 2·max(L/μ, C/G) = 8, so μ²(γ + 1)/4 = ½
    assert asdict(derived_coefficients(k)) == pytest.approx(
        {"scale": 16 / 17, "a1": 8, "a2": 24, "a3": 18 + 8 + 2 + 0.75, "a4": 4 + 4 + 3 + 1.5, "a5": 0.5}, rel=1e-15
    )


def test_print_is_the_theorem_only_for_mu_one(constants):
    assert printed_coefficients(constants(mu=1.0)) == theorem_coefficients(constants(mu=1.0))
    k = constants(mu=0.5, q0=0.25)
    assert printed_coefficients(k) != theorem_coefficients(k)
    # At λ = 0 floor and ceiling meet in C_t = 1, where P must be the bound itself.
    assert theorem_coefficients(k).P(0) == pytest.approx(printed_bound(k, 1.0), rel=1e-15)
    assert printed_coefficients(k).P(0) != pytest.approx(printed_bound(k, 1.0), rel=0.1)


def test_derived_set_is_derived_p_where_clipping_is_silent(constants):
    k = constants(q0=0.5, clip=2.0)
    assert clipping_switch(k) == 2.0
    c = derived_coefficients(k)
    for x in (0.0, 0.3, 1.0, 2.0):
        assert c.P(x) == pytest.approx(derived_P(k, x), rel=1e-14)
    assert c.P(2.5) < derived_P(k, 2.5)


def symbolic_f():
    return (a1 * lam**3 + a2 * lam**2 + a3 * lam + a4) / (a5 * lam + 1)


def symbolic_g():
    return 2 * a1 * a5 * lam**3 + (3 * a1 + a2 * a5) * lam**2 + 2 * a2 * lam + a3 - a4 * a5


def test_g_is_the_numerator_of_f_prime():
    assert sp.simplify(sp.diff(symbolic_f(), lam) * (a5 * lam + 1) ** 2 - symbolic_g()) == 0


def test_g_prime_in_factors_and_its_discriminant():
    slope = sp.diff(symbolic_g(), lam)
    assert sp.expand(slope - 2 * (3 * a1 * lam + a2) * (a5 * lam + 1)) == 0
    a, b, c, _ = sp.Poly(symbolic_g(), lam).all_coeffs()
    assert sp.expand(b**2 - 3 * a * c - (3 * a1 - a2 * a5) ** 2) == 0


def test_distance_leaves_g_alone(constants):
    """D adds a constant to F, so λ* of the print is that of Theorem 2 in spite of the missing μ²."""
    assert sp.expand(symbolic_g().subs({a3: a3 + a5 * D, a4: a4 + D}) - symbolic_g()) == 0
    k = constants(mu=0.5, q0=0.25, distance=3.0)
    assert printed_coefficients(k).cubic == pytest.approx(theorem_coefficients(k).cubic, rel=1e-14)
    assert derived_coefficients(k).cubic == pytest.approx(
        derived_coefficients(replace(k, distance=0.0)).cubic, rel=1e-14
    )


def test_functions_against_another_library():
    c = Coefficients(scale=0.5, a1=1.0, a2=-2.0, a3=0.5, a4=3.0, a5=0.7)
    for x in (0.0, 0.4, 1.3):
        assert c.P(x) == c.F(x) / 2
        assert c.G(x) / (c.a5 * x + 1) ** 2 == pytest.approx(
            derivative(lambda z: (z**3 - 2 * z**2 + z / 2 + 3) / (0.7 * z + 1), x).df, rel=1e-8
        )
        assert c.G(x) == pytest.approx(
            float(symbolic_g().subs(dict(zip((a1, a2, a3, a4, a5), (1, -2, 0.5, 3, 0.7), strict=True)) | {lam: x})),
            rel=1e-12,
        )
        assert c.dG(x) == pytest.approx(derivative(lambda z: 1.4 * z**3 + 1.6 * z**2 - 4 * z - 1.6, x).df, rel=1e-8)
