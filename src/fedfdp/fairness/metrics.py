"""How well and how equally a model serves the clients. Everything here reads raw results: simulation, or by consent."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClientResults:
    """One model's results on each client's own data: mean loss, accuracy (NaN in regression), records, and p_i."""

    losses: Floats  # each client's mean loss
    accuracies: Floats  # NaN in regression
    records: NDArray[np.int64]  # that each client was judged by
    shares: Floats  # p_i = n_i / Σ n_j
    metric: str = "loss"  # what Ψ is the spread of: loss, accuracy, or a function's name …
    performance: Floats | None = None  # … and then that function's values
    noise: Floats | None = None  # the variance of the noise on each loss, where they were released under privacy

    def served(self) -> "ClientResults":
        """Without the clients that have no record to be judged by."""
        keep = self.records > 0
        given: dict[str, Any] = {n: value[keep] for n, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **given)

    @property
    def judged_by(self) -> Floats:
        """Each client's performance."""
        if self.performance is not None:
            return self.performance
        return self.accuracies if self.metric == "accuracy" else self.losses


def psi(performance: ArrayLike, shares: ArrayLike, noise: ArrayLike | None = None) -> float:
    """Ψ(w) = Σ p_i (F_i(w) − F(w))², F(w) = Σ p_i F_i(w). Eq. 3

    Independent noise of variance v_i on each F_i adds Σ p_i(1 − p_i)v_i to it in the mean: with `noise` that is taken
    off again, down to 0.
    """
    f, p = np.asarray(performance, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    p = p / p.sum()
    spread = float(p @ (f - p @ f) ** 2)
    if noise is None:
        return spread
    return max(0.0, spread - float((p * (1 - p)) @ np.asarray(noise, dtype=np.float64)))


def jain(values: ArrayLike) -> float:
    """Jain's index (Σx)²/(n·Σx²): 1 when all are equal, 1/n when one has everything."""
    x = np.asarray(values, dtype=np.float64)
    squares = float((x**2).sum())
    return float(x.sum() ** 2 / (len(x) * squares)) if squares > 0 else 1.0


def worst_share(values: ArrayLike, share: float = 0.1) -> float:
    """Mean of the lowest `share` of the values, of one value at least."""
    x = np.sort(np.asarray(values, dtype=np.float64))
    return float(x[: max(1, math.ceil(share * len(x)))].mean())


def measures(results: ClientResults) -> dict[str, float]:
    """Every measure of a model's results: fractions; accuracies are NaN in regression."""
    r = results.served()
    if not len(r.records):
        return dict.fromkeys(MEASURES, math.nan)
    noise = r.noise if r.metric == "loss" else None
    found = {
        "accuracy": float(np.average(r.accuracies, weights=r.records)),
        "loss": float(np.average(r.losses, weights=r.shares)),
        "psi": psi(r.judged_by, r.shares, noise),
        "worst_accuracy": float(r.accuracies.min()),
        "worst_10_percent": worst_share(r.accuracies),
        "std_accuracy": float(r.accuracies.std()),
        "jain": jain(r.accuracies),
        "worst_loss": float(r.losses.max()),
    }
    if r.performance is None:
        return found
    own = {
        "performance": float(np.average(r.performance, weights=r.shares)),
        "lowest_performance": float(r.performance.min()),
        "highest_performance": float(r.performance.max()),
        "std_performance": float(r.performance.std()),
    }
    return found | own


MEASURES = (
    "accuracy",
    "loss",
    "psi",
    "worst_accuracy",
    "worst_10_percent",
    "std_accuracy",
    "jain",
    "worst_loss",
)
