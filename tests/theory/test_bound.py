"""Theorem 2: numbers by hand, the proof's arithmetic by computer algebra, and where the print goes wrong."""

import math
import random

import pytest
import sympy as sp

from fedfdp.theory.bound import (
    Constants,
    derived_A,
    derived_bound,
    derived_domain,
    derived_P,
    printed_A,
    printed_bound,
    printed_domain,
    step_offset,
    weight_ceiling,
    weight_floor,
)


def test_by_hand(constants):
    k = constants()
    assert printed_A(k, 1.0) == 1 + 3 + 4 + 2
    assert derived_A(k, 1.0) == 1 + 3 + 4 + 3
    assert printed_A(k, 2.0) == 8 + 12 + 8 + 2
    assert derived_A(k, 2.0) == 8 + 12 + 8 + 4
    assert printed_bound(k, 1.0) == pytest.approx(2 / 20 * (10 + 1), rel=1e-15)
    assert step_offset(k) == 3  # 2·L/μ − 1
    assert derived_bound(k, floor=1.0, ceiling=1.0) == pytest.approx(2 / 26 * (4 * 11 + 4 * 1), rel=1e-15)
    assert derived_bound(k, floor=0.75, ceiling=2.0) == pytest.approx(2 / 26 * (4 * 32 / 0.5 + 4), rel=1e-15)


def test_strong_convexity_enters_squared(constants):
    k = constants(mu=0.5)
    assert printed_bound(k, 1.0) == pytest.approx(2 / 20 * (10 / 0.25 + 1), rel=1e-15)
    assert step_offset(k) == 7
    assert derived_bound(k, floor=1.0, ceiling=1.0) == pytest.approx(2 / 34 * (44 / 0.25 + 8), rel=1e-15)


def test_offset_covers_the_largest_floor(constants):
    assert step_offset(constants(q0=0.1, clip=9.0)) == 2 * 9 - 1  # floor rises to C/G = 9 > L/μ = 2
    assert step_offset(constants(q0=-0.1, clip=9.0)) == 3  # floor never above 1


def test_nothing_is_said_where_two_c_is_at_most_one(constants):
    k = constants()
    assert printed_bound(k, 0.5) == derived_bound(k, floor=0.5, ceiling=1.0) == math.inf
    assert printed_bound(k, 0.01) == derived_bound(k, floor=0.01, ceiling=1.0) == math.inf


def test_floor_and_ceiling(constants):
    k = constants(q0=0.5, q1=1.0, clip=2.0)
    assert [weight_floor(k, lam) for lam in (0, 1, 2, 4)] == [1.0, 1.5, 2.0, 2.0]
    assert [weight_ceiling(k, lam) for lam in (0, 1, 4)] == [1.0, 2.0, 5.0]
    assert weight_floor(constants(clip=0.75), 0.25) == 0.75


def test_floor_and_ceiling_hold_for_the_weights_themselves(constants):
    """Eq. 15 on random records: the printed floor 1 + Q_0·λ is broken by clipping, min(1 + Q_0·λ, C/G) is not."""
    rng = random.Random(3)
    k = constants(q0=-0.5, q1=1.0, clip=1.5, G=2.0)
    broken = 0
    for _ in range(2000):
        lam = rng.uniform(0, 1)
        weight = min(1 + lam * rng.uniform(k.q0, k.q1), k.clip / (k.G * rng.uniform(1e-3, 1)))
        assert weight_floor(k, lam) <= weight <= weight_ceiling(k, lam)
        broken += weight < 1 + k.q0 * lam
    assert broken > 0


def test_domains(constants):
    assert printed_domain(constants(q0=-0.4)) == (0, 1.25)
    assert printed_domain(constants(q0=0.0)) == (0, math.inf)
    assert derived_domain(constants(q0=-0.4)) == (0, 1.25)
    assert derived_domain(constants(clip=0.5)) == (0, 0)
    k = constants(q0=-0.4)
    assert math.isfinite(derived_P(k, 1.2499))
    assert derived_P(k, 1.25) == derived_P(k, 3.0) == math.inf


def test_lemma_from_its_parts():
    """E[A_2] and E[A_1] of the proof added up: C_t·σ²C²d/B̂² is missing from the printed A."""
    c, grad, n, LGamma = sp.symbols("c G n LGamma", positive=True)
    a_2 = n + grad**2 * c**2
    drift = a_2
    a_1 = (1 + c) * drift + grad**2 * c**2 + 2 * LGamma * c
    print_ = grad**2 * c**3 + 3 * grad**2 * c**2 + 2 * LGamma * c + 2 * n
    assert sp.expand(a_1 + a_2 - print_) == c * n
    proof = sp.lambdify((c, grad, LGamma, n), a_1 + a_2)
    k = Constants(
        L=3.0, mu=0.7, G=1.3, gamma_het=0.4, q0=0, q1=1, sigma=1.1, clip=0.9, dim=7, b_hat=2.5, distance=1, rounds=5
    )
    for C_t in (0.6, 1.0, 1.7):
        assert derived_A(k, C_t) == pytest.approx(proof(C_t, 1.3, 3.0 * 0.4, 1.1**2 * 0.9**2 * 7 / 2.5**2), rel=1e-14)


def test_two_beta_is_four_over_mu_squared():
    mu, c, A = sp.symbols("mu c A", positive=True)
    beta = 2 / mu
    assert sp.simplify(beta**2 * A / (mu * beta * c - 1) - 4 * A / (mu**2 * (2 * c - 1))) == 0


def recursion(*, mu, C_t, A, start, rounds, offset):
    """The lemma with equality: the worst sequence it allows."""
    delta = start
    for t in range(1, rounds):
        eta = 2 / (mu * (t + offset))
        delta = max(0.0, (1 - mu * eta * C_t) * delta + eta**2 * A)
    return delta


def test_printed_induction_fails_at_its_first_step(constants):
    """w_1 = w*, C_t = 1, η = β/t: the lemma allows Δ_2 = β²A, and the induction claims at most β²A/2."""
    k = constants(distance=0.0, rounds=2)
    A = printed_A(k, 1.0)
    allowed = recursion(mu=k.mu, C_t=1.0, A=A, start=0.0, rounds=2, offset=0.0)
    assert allowed == 4 * A
    assert k.L / 2 * allowed > printed_bound(k, 1.0)
    with_the_four = k.L / (2 * 2) * 4 * A
    assert k.L / 2 * allowed > with_the_four


def test_derived_bound_covers_every_sequence_of_the_lemma(constants):
    rng = random.Random(11)
    for _ in range(300):
        mu = 10 ** rng.uniform(-2, 1)
        k = constants(
            L=mu * 10 ** rng.uniform(0, 2),
            mu=mu,
            G=10 ** rng.uniform(-1, 1),
            clip=50.0,
            q0=rng.choice([-0.3, 0.2]),
            q1=0.5,
            distance=rng.choice([0.0, 10 ** rng.uniform(-2, 3)]),
            rounds=rng.randint(1, 60),
        )
        lam = rng.uniform(0, 1.6)
        floor, ceiling = weight_floor(k, lam), weight_ceiling(k, lam)
        last = recursion(
            mu=mu, C_t=floor, A=derived_A(k, ceiling), start=k.distance, rounds=k.rounds, offset=step_offset(k)
        )
        assert k.L / 2 * last <= derived_bound(k, floor=floor, ceiling=ceiling) * (1 + 1e-12)
