"""The roots of G by the closed form of the paper: a depressed cubic, or what is left of it where a5 = 0.

Never chooses between roots: which one is λ*, and whether any is, depends on the domain.
"""

import cmath
from dataclasses import dataclass

from fedfdp.theory.bound import Coefficients

OMEGA = complex(-1, 3**0.5) / 2


@dataclass(frozen=True, kw_only=True)
class Depressed:
    """x³ + a6·x + a7 = 0 with λ = x − shift."""

    a6: float
    a7: float
    shift: float


def depressed(c: Coefficients) -> Depressed:
    """a6, a7 and the shift, which agree with the print; a1·a5 must not be 0."""
    a, b, _, d = c.cubic
    a15 = c.a1 * c.a5
    return Depressed(
        a6=-((3 * c.a1 - c.a2 * c.a5) ** 2) / (12 * a15**2),
        a7=(108 * a15**2 * d - 36 * a15 * c.a2 * b + 2 * b**3) / (216 * a15**3),
        shift=b / (3 * a),
    )


def roots(c: Coefficients) -> tuple[complex, ...]:
    """All roots of G: three, or two, one or none where its leading coefficients are 0.

    None, too, where floating point cannot hold the closed form.
    """
    a, b, slope, rest = c.cubic
    if a != 0:
        try:
            form = depressed(c)
            return tuple(x - form.shift for x in _cardano(form.a6, form.a7))
        except (OverflowError, ZeroDivisionError):  # a1·a5 so far from 1 that its cube is no number any more
            return ()
    if b != 0:
        return _quadratic(b, slope, rest)
    return (complex(-rest / slope),) if slope != 0 else ()


def _cardano(a6: float, a7: float) -> tuple[complex, complex, complex]:
    """x_1, x_2, x_3 as printed, where the second cube root is the one whose product with the first is −a6/3.

    Principal cube roots on both sides, the plain reading of the print, give that product only where all roots are real.
    """
    half, root = -a7 / 2, cmath.sqrt(a7 * a7 / 4 + a6 * a6 * a6 / 27)
    larger = half + root if abs(half + root) >= abs(half - root) else half - root  # the one without cancellation
    if larger == 0:
        return 0j, 0j, 0j
    u = larger ** (1 / 3)
    v = -a6 / (3 * u)
    return u + v, OMEGA * u + OMEGA**2 * v, OMEGA**2 * u + OMEGA * v


def _quadratic(a: float, b: float, c: float) -> tuple[complex, complex]:
    root = cmath.sqrt(b * b - 4 * a * c)
    larger = -b - root if abs(b + root) >= abs(b - root) else -b + root
    if larger == 0:
        return 0j, 0j
    return larger / (2 * a), 2 * c / larger
