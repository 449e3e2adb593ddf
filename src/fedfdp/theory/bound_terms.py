# ruff: noqa: N802 - P, F and G are the paper's names
"""P(λ) = scale·F(λ), F a cubic over a line, and its coefficients a1 … a5: three sets, one function each.

A set is the bound only where a5·λ + 1 > 0; elsewhere F is a formula without a meaning, and nothing here checks that.
"""

from dataclasses import dataclass

from fedfdp.theory.bound import step_offset
from fedfdp.theory.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """F(λ) = (a1·λ³ + a2·λ² + a3·λ + a4) / (a5·λ + 1)."""

    scale: float
    a1: float
    a2: float
    a3: float
    a4: float
    a5: float

    def F(self, lam: float) -> float:
        return (((self.a1 * lam + self.a2) * lam + self.a3) * lam + self.a4) / (self.a5 * lam + 1)

    def P(self, lam: float) -> float:
        return self.scale * self.F(lam)

    @property
    def cubic(self) -> tuple[float, float, float, float]:
        """G's coefficients, highest power first. G is the numerator of F′ (the print says denominator)."""
        return (
            2 * self.a1 * self.a5,
            3 * self.a1 + self.a2 * self.a5,
            2 * self.a2,
            self.a3 - self.a4 * self.a5,
        )

    def G(self, lam: float) -> float:
        a, b, c, d = self.cubic
        return ((a * lam + b) * lam + c) * lam + d

    def dG(self, lam: float) -> float:
        """G′ in factors: its sign is read off, and on the domain it is that of 3·a1·λ + a2."""
        return 2 * (3 * self.a1 * lam + self.a2) * (self.a5 * lam + 1)


def printed_coefficients(k: Constants) -> Coefficients:
    """As printed beside P(λ): the prefactor lacks a 1/μ, and the distance its μ²."""
    return Coefficients(
        scale=k.L / (2 * k.mu * k.rounds),
        a1=k.G**2 * k.q1**3,
        a2=6 * k.G**2 * k.q1**2,
        a3=9 * k.q1 * k.G**2 + 2 * k.L * k.gamma_het * k.q1 + 2 * k.q0 * k.distance,
        a4=4 * k.G**2 + 2 * k.L * k.gamma_het + 2 * k.noise + k.distance,
        a5=2 * k.q0,
    )


def theorem_coefficients(k: Constants) -> Coefficients:
    """What Theorem 2, taken as printed, gives for C_t ≤ 1 + Q_1·λ above and C_t ≥ 1 + Q_0·λ below."""
    distance = k.mu**2 * k.distance
    return Coefficients(
        scale=k.L / (2 * k.mu**2 * k.rounds),
        a1=k.G**2 * k.q1**3,
        a2=6 * k.G**2 * k.q1**2,
        a3=(9 * k.G**2 + 2 * k.L * k.gamma_het) * k.q1 + 2 * k.q0 * distance,
        a4=4 * k.G**2 + 2 * k.L * k.gamma_het + 2 * k.noise + distance,
        a5=2 * k.q0,
    )


def derived_coefficients(k: Constants) -> Coefficients:
    """What the proof yields. It is `derived_P` wherever 1 + Q_0·λ ≤ C/G."""
    offset = step_offset(k)
    distance = k.mu**2 * (offset + 1) / 4 * k.distance
    return Coefficients(
        scale=2 * k.L / (k.mu**2 * (k.rounds + offset)),
        a1=k.G**2 * k.q1**3,
        a2=6 * k.G**2 * k.q1**2,
        a3=(9 * k.G**2 + 2 * k.L * k.gamma_het + k.noise) * k.q1 + 2 * k.q0 * distance,
        a4=4 * k.G**2 + 2 * k.L * k.gamma_het + 3 * k.noise + distance,
        a5=2 * k.q0,
    )
