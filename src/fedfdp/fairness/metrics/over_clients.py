"""How well and how equally a model serves the clients: the metrics that are computed of their results."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedfdp.fairness.metrics.registry import Curve, Metric, Task, register
from fedfdp.fairness.metrics.results import OWN, Compute, of_results

CLASSES: tuple[Task, ...] = ("classification",)


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


# Each metric and how it is computed of the clients' results; None: `training/rounds.py` computes Ψ of other values than
# the test's, and `fairness.performance` gives OWN, the metric of outputs that `metric=package.module:function` names.
_METRICS: tuple[tuple[Metric, Compute | None], ...] = (
    (Metric("accuracy", "accuracy", "percent", "share of all test records that are right",
            better="higher", tasks=CLASSES, by_client=True, line="accuracy", result="test accuracy", column="accuracy",
            curve=Curve("Test accuracy", "all test records")),
     lambda r: float(np.average(r.accuracies, weights=r.records))),
    (Metric("loss", "loss", "number", "mean over the clients' test losses, by their training records",
            better="lower", stands_for="accuracy", by_client=True, line="loss", result="test loss", column="loss",
            curve=Curve("Test loss", "mean")),
     lambda r: float(np.average(r.losses, weights=r.shares))),
    (Metric("worst_accuracy", "worst client", "percent", "accuracy at the client where it is lowest",
            better="higher", tasks=CLASSES, line="worst", result="worst client", column="worst",
            curve=Curve("Test accuracy", "worst client")),
     lambda r: float(r.accuracies.min())),
    (Metric("worst_loss", "worst client's loss", "number", "loss at the client where it is highest",
            better="lower", stands_for="worst_accuracy", line="worst", result="worst client", column="worst loss",
            curve=Curve("Test loss", "worst client")),
     lambda r: float(r.losses.max())),
    (Metric("worst_10_percent", "worst tenth of clients", "percent",
            "mean accuracy of the tenth of clients served worst", better="higher", tasks=CLASSES),
     lambda r: worst_share(r.accuracies)),
    (Metric("std_accuracy", "spread over clients (standard deviation)", "percent",
            "standard deviation of the clients' accuracies", better="lower", tasks=CLASSES),
     lambda r: float(r.accuracies.std())),
    (Metric("jain", "Jain's index of the accuracies", "number",
            "1 when all clients have the same accuracy, less otherwise", better="higher", tasks=CLASSES),
     lambda r: jain(r.accuracies)),
    (Metric("psi", "Ψ test", "number", "variance of the clients' test {metric}",
            better="lower", line="Ψ", result="Ψ{of} (test)", column="Ψ test",
            curve=Curve("Ψ", "Ψ", log=True,
                        note="Variance of the clients' test {metric}: the lower, the more equally they are served.")),
     lambda r: psi(r.judged_by, r.shares, r.noise if r.metric == "loss" else None)),
    (Metric("psi_train", "Ψ train", "number", "variance of the clients' {metric} on their training records, at the end",
            better="lower", result="Ψ{of} (train)", column="Ψ train"), None),
    (Metric("psi_local", "Ψ of local models", "number",
            "variance of the losses of the clients' own models after a round", better="lower"), None),
    (Metric(OWN, "{metric}", "number", "mean over the clients, weighted by their training records", by_client=True),
     None),
    (Metric("lowest_performance", "lowest {metric}", "number", "at the client where it is lowest", needs=OWN),
     lambda r: float(r.of_outputs[OWN].min())),
    (Metric("highest_performance", "highest {metric}", "number", "at the client where it is highest", needs=OWN),
     lambda r: float(r.of_outputs[OWN].max())),
    (Metric("std_performance", "spread of {metric} (standard deviation)", "number",
            "standard deviation over the clients", better="lower", needs=OWN),
     lambda r: float(r.of_outputs[OWN].std())),
)  # fmt: skip
for _metric, _compute in _METRICS:
    if _compute is None:
        register(_metric)
    else:
        of_results(_metric)(_compute)
