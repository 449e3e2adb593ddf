"""The constants the convergence bound is made of, checked once when they are put together.

Never reads data: where the numbers come from is the caller's business.
"""

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
