"""The closed form of the roots, against numpy and by algebra, and what the print says of the roots."""

import random

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from fedfdp.theory.bound import Coefficients
from fedfdp.theory.cubic import depressed, roots


def cubic(a1=1.0, a2=1.0, a3=1.0, a4=1.0, a5=1.0):
    return Coefficients(scale=1.0, a1=a1, a2=a2, a3=a3, a4=a4, a5=a5)


def test_a6_a7_and_shift_by_algebra():
    a1, a2, a3, a4, a5, x = sp.symbols("a1:6 x")
    b = 3 * a1 + a2 * a5
    lam = x - b / (6 * a1 * a5)
    G = 2 * a1 * a5 * lam**3 + b * lam**2 + 2 * a2 * lam + a3 - a4 * a5
    a6 = -((3 * a1 - a2 * a5) ** 2) / (12 * a1**2 * a5**2)
    a7 = (108 * a1**2 * a5**2 * (a3 - a4 * a5) - 36 * a1 * a2 * a5 * b + 2 * b**3) / (216 * a1**3 * a5**3)
    assert sp.simplify(G / (2 * a1 * a5) - (x**3 + a6 * x + a7)) == 0
    values = {a1: 1.5, a2: -0.4, a3: 2.0, a4: 0.3, a5: 0.8}
    form = depressed(cubic(1.5, -0.4, 2.0, 0.3, 0.8))
    assert [form.a6, form.a7, form.shift] == pytest.approx(
        [float(e.subs(values)) for e in (a6, a7, b / (6 * a1 * a5))], rel=1e-13
    )


def test_by_hand():
    # a1 = 1, a5 = ½, a2 = 0: G = λ³ + 3λ² + a3 − a4/2; with a3 = 0, a4 = 8 it is (λ − 1)(λ + 2)².
    found = sorted(roots(cubic(1.0, 0.0, 0.0, 8.0, 0.5)), key=lambda z: z.real)
    assert found == pytest.approx([-2, -2, 1], abs=1e-7)  # a double root keeps half the digits


def test_against_numpy():
    rng = random.Random(1)
    three_real = 0
    for _ in range(2000):
        c = cubic(*(rng.choice([-1, 1]) * 10 ** rng.uniform(-1, 1) for _ in range(5)))
        expected = np.sort_complex(np.roots(c.cubic))
        scale = abs(expected).max()
        distances = [min(abs(z - e) for e in expected) / scale for z in roots(c)]
        distances += [min(abs(z - e) for z in roots(c)) / scale for e in expected]
        assert max(distances) < 1e-7  # both lose digits where two roots nearly meet
        three_real += max(abs(expected.imag)) == 0
    assert 100 < three_real < 1900


@given(st.lists(st.floats(-1e30, 1e30), min_size=5, max_size=5))
def test_never_fails(values):
    assert len(roots(cubic(*values))) <= 3


@pytest.mark.parametrize(
    ("coefficients", "expected"),
    [
        (cubic(1.0, 2.0, -7.0, 5.0, 0.0), [-7 / 3, 1.0]),  # 3λ² + 4λ − 7
        (cubic(1.0, 0.0, 3.0, 5.0, 0.0), [-1j, 1j]),  # 3λ² + 3
        (cubic(1.0, 0.0, 0.0, 5.0, 0.0), [0, 0]),  # 3λ²
        (cubic(0.0, 2.0, -6.0, 5.0, 0.0), [1.5]),  # 4λ − 6
        (cubic(0.0, 0.0, 3.0, 1.0, 0.0), []),
        (cubic(0.0, 1.0, 1.0, 4.0, 1.0), [-3.0, 1.0]),  # λ² + 2λ − 3
    ],
)
def test_lower_degrees(coefficients, expected):
    found = sorted(roots(coefficients), key=lambda z: (z.real, z.imag))
    assert found == pytest.approx(expected, rel=1e-14, abs=1e-14)


def test_principal_cube_roots_are_not_the_printed_roots():
    """x³ + a6·x + a7 with one real root: principal cube roots on both sides miss it, the paired ones do not."""
    c = cubic(1.0, 0.0, 0.0, -8.0, 0.5)  # λ³ + 3λ² + 4, with one real root near −3.36
    form = depressed(c)
    inner = complex(form.a7**2 / 4 + form.a6**3 / 27) ** 0.5
    naive = (-form.a7 / 2 + inner) ** (1 / 3) + (-form.a7 / 2 - inner) ** (1 / 3) - form.shift
    assert abs(c.G(naive)) > 1
    assert max(abs(c.G(z)) for z in roots(c)) < 1e-13
