"""How well and how equally a model serves the clients. Everything here reads raw results: simulation, or by consent."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ClientResults:
    """One model's results on each client's own data: mean loss, accuracy (NaN in regression), records, and p_i."""

    losses: NDArray[np.float64]
    accuracies: NDArray[np.float64]
    records: NDArray[np.int64]
    shares: NDArray[np.float64]

    def served(self) -> "ClientResults":
        """Without the clients that have no record to be judged by."""
        keep = self.records > 0
        return ClientResults(self.losses[keep], self.accuracies[keep], self.records[keep], self.shares[keep])


def psi(losses: ArrayLike, shares: ArrayLike) -> float:
    """Ψ(w) = Σ p_i (F_i(w) − F(w))², F(w) = Σ p_i F_i(w). Eq. 3"""
    f, p = np.asarray(losses, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    p = p / p.sum()
    return float(p @ (f - p @ f) ** 2)


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
    return {
        "accuracy": float(np.average(r.accuracies, weights=r.records)),
        "loss": float(np.average(r.losses, weights=r.shares)),
        "psi": psi(r.losses, r.shares),
        "worst_accuracy": float(r.accuracies.min()),
        "worst_10_percent": worst_share(r.accuracies),
        "std_accuracy": float(r.accuracies.std()),
        "jain": jain(r.accuracies),
        "worst_loss": float(r.losses.max()),
    }


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
