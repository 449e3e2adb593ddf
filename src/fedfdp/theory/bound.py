# ruff: noqa: N802 - A, P, F and G are the paper's names
"""Theorem 2: the bound on E[F(w_T)] − F*, as printed and as its own proof yields it; P(λ), the bound in λ; its terms.

Arithmetic on constants that are checked once; it never reads data. Where 2C_t − 1 ≤ 0 the theorem says nothing: the
bound there is infinite, never a negative number. docs/theory.md has the algebra.
"""

import math
from dataclasses import dataclass

from fedfdp.core.errors import SettingError

LARGEST = 1e30  # keeps every square and cube of the bound within floating point


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The paper's symbols; `q0` and `q1` bound Δ_ij = F_ij − F(w_t), and `clip` is C, never C_t."""

    L: float  # smoothness of every F_i
    mu: float  # μ, strong convexity of every F_i
    G: float  # bound on the norm of every record's gradient
    gamma_het: float  # Γ = F* − Σ p_i F_i*
    q0: float  # Q_0 ≤ Δ_ij
    q1: float  # Δ_ij ≤ Q_1
    sigma: float  # noise multiplier of the gradient
    clip: float  # C
    dim: int  # d, the number of weights
    b_hat: float  # B̂, the smallest client's batch size
    distance: float  # E‖w_1 − w*‖²
    rounds: int  # T

    def __post_init__(self) -> None:
        positive = {"L": self.L, "mu": self.mu, "G": self.G, "clip": self.clip, "b_hat": self.b_hat}
        not_negative = {"Gamma": self.gamma_het, "sigma": self.sigma, "distance": self.distance}
        counts = {"dim": self.dim, "rounds": self.rounds}
        for name, value in (positive | not_negative | counts | {"q0": self.q0, "q1": self.q1}).items():
            if not abs(value) <= LARGEST:  # refuses NaN too
                raise SettingError(name, value, f"must be a number of size at most {LARGEST:g}")
        for name, value in positive.items():
            if value < 1 / LARGEST:
                raise SettingError(name, value, f"must be greater than 0 (at least {1 / LARGEST:g})")
        for name, value in not_negative.items():
            if value < 0:
                raise SettingError(name, value, "must be 0 or more")
        for name, count in counts.items():
            if count < 1 or count != int(count):
                raise SettingError(name, count, "must be a whole number, 1 or more")
        if self.mu > self.L:
            raise SettingError("mu", self.mu, f"must be at most L = {self.L:g}", "nothing curves more than L allows")
        if self.q0 > self.q1:
            raise SettingError(
                "q0", self.q0, f"must be at most q1 = {self.q1:g}", "q0 is the least gap, q1 the largest"
            )

    @property
    def noise(self) -> float:
        """σ²C²d/B̂²: the expected squared norm of one step's noise, divided by η²."""
        return (self.sigma * self.clip / self.b_hat) ** 2 * self.dim

    @property
    def clip_ratio(self) -> float:
        """C/G: no record's C/‖g‖ is smaller."""
        return self.clip / self.G


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


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """P(λ) = scale·F(λ), F(λ) = (a1·λ³ + a2·λ² + a3·λ + a4) / (a5·λ + 1).

    It is the bound only where a5·λ + 1 > 0; elsewhere F is a formula without a meaning, and nothing here checks that.
    """

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
