"""How equally a model serves the clients: the metrics that are computed of their results."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedfdp.fairness.metrics.how_well import CLASSES, NUMBERS
from fedfdp.fairness.metrics.intervals import wilson
from fedfdp.fairness.metrics.registry import Curve, Metric, register
from fedfdp.fairness.metrics.results import OWN, ClientResults, Compute, of_results


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


def gini(values: ArrayLike) -> float:
    """Gini's coefficient Σ_ij|x_i − x_j|/(2n²·mean): 0 when all are equal, (n − 1)/n when one has everything."""
    x = np.sort(np.asarray(values, dtype=np.float64))
    total = float(x.sum())
    return float((2 * np.arange(1, len(x) + 1) - len(x) - 1) @ x / (len(x) * total)) if total > 0 else 0.0


def worst_share(values: ArrayLike, share: float = 0.1) -> float:
    """Mean of the lowest `share` of the values, of one value at least."""
    x = np.sort(np.asarray(values, dtype=np.float64))
    return float(x[: max(1, math.ceil(share * len(x)))].mean())


def _worst_end(r: ClientResults, which: int) -> float:
    worst = int(r.accuracies.argmin())
    return float(wilson(r.accuracies[worst], r.records[worst])[which])


# Each metric and how it is computed of the clients' results; None: `training/rounds.py` computes Ψ of other values than
# the test's, and `fairness.performance` gives OWN, the metric of outputs that `metric=package.module:function` names.
_METRICS: tuple[tuple[Metric, Compute | None], ...] = (
    (Metric("worst_accuracy", "worst client", "percent", "accuracy at the client where it is lowest",
            better="higher", tasks=CLASSES, interval=("worst_accuracy_low", "worst_accuracy_high"),
            line="worst", result="worst client", column="worst", curve=Curve("Test accuracy", "worst client")),
     lambda r: float(r.accuracies.min())),
    (Metric("worst_accuracy_low", "worst client, at least", "percent",
            "lower end of the 95 % interval of the worst client's accuracy (Wilson)", tasks=CLASSES),
     lambda r: _worst_end(r, 0)),
    (Metric("worst_accuracy_high", "worst client, at most", "percent",
            "upper end of the 95 % interval of the worst client's accuracy (Wilson)", tasks=CLASSES),
     lambda r: _worst_end(r, 1)),
    (Metric("worst_loss", "worst client's loss", "number", "loss at the client where it is highest",
            better="lower", stands_for="worst_accuracy", line="worst", result="worst client", column="worst loss",
            curve=Curve("Test loss", "worst client")),
     lambda r: float(r.losses.max())),
    (Metric("worst_10_percent", "worst tenth of clients", "percent",
            "mean accuracy of the tenth of clients served worst", better="higher", tasks=CLASSES),
     lambda r: worst_share(r.accuracies)),
    (Metric("worst_10_percent_loss", "loss of the worst tenth of clients", "number",
            "mean loss of the tenth of clients served worst", better="lower"),
     lambda r: -worst_share(-r.losses)),
    (Metric("std_accuracy", "spread over clients (standard deviation)", "percent",
            "standard deviation of the clients' accuracies", better="lower", tasks=CLASSES),
     lambda r: float(r.accuracies.std())),
    (Metric("variance_accuracy", "variance of the accuracies", "number",
            "variance of the clients' accuracies, every client counting the same", better="lower", tasks=CLASSES),
     lambda r: float(r.accuracies.var())),
    (Metric("variance_loss", "variance of the losses", "number",
            "variance of the clients' losses, every client counting the same; Ψ weighs them by their records",
            better="lower"),
     lambda r: float(r.losses.var())),
    (Metric("jain", "Jain's index of the accuracies", "number",
            "1 when all clients have the same accuracy, less otherwise", better="higher", tasks=CLASSES),
     lambda r: jain(r.accuracies)),
    (Metric("jain_loss", "Jain's index of the losses", "number",
            "1 when all clients have the same loss, less otherwise", better="higher"),
     lambda r: jain(r.losses)),
    (Metric("gini_accuracy", "Gini coefficient of the accuracies", "number",
            "0 when all clients have the same accuracy, nearly 1 when one client has all of it", better="lower",
            tasks=CLASSES),
     lambda r: gini(r.accuracies)),
    (Metric("gini_loss", "Gini coefficient of the losses", "number",
            "0 when all clients have the same loss, nearly 1 when one client bears all of it", better="lower"),
     lambda r: gini(r.losses)),
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
    (Metric("alone_accuracy", "alone", "percent",
            "accuracy of each client's own model, trained on its records alone and without noise: a reference of the "
            "simulation, never released", better="higher", tasks=CLASSES, by_client=True, result="each alone"), None),
    (Metric("alone_rmse", "RMSE alone", "number",
            "RMSE of each client's own model, trained on its records alone and without noise: a reference of the "
            "simulation, never released", better="lower", tasks=NUMBERS, by_client=True, result="each alone"), None),
    (Metric("better_alone", "clients better off alone", "count",
            "clients whose own model, trained alone and without noise, does better on their test records",
            better="lower", tasks=CLASSES, needs="alone_accuracy", result="better off alone"),
     lambda r: int((r.of_outputs["alone_accuracy"] > r.accuracies).sum())),
    (Metric("better_alone_rmse", "clients better off alone", "count",
            "clients whose own model, trained alone and without noise, has a lower RMSE on their test records",
            better="lower", tasks=NUMBERS, needs="alone_rmse", result="better off alone"),
     lambda r: int((r.of_outputs["alone_rmse"] < r.by_client()["rmse"]).sum())),
    (Metric("lowest_performance", "lowest {metric}", "number", "at the client where it is lowest", needs=OWN),
     lambda r: float(r.of_outputs[OWN].min())),
    (Metric("highest_performance", "highest {metric}", "number", "at the client where it is highest", needs=OWN),
     lambda r: float(r.of_outputs[OWN].max())),
    (Metric("std_performance", "spread of {metric} (standard deviation)", "number",
            "standard deviation over the clients", better="lower", needs=OWN),
     lambda r: float(r.of_outputs[OWN].std())),
)  # fmt: skip


def declare() -> None:
    """Adds these metrics to the registry."""
    for metric, compute in _METRICS:
        if compute is None:
            register(metric)
        else:
            of_results(metric)(compute)
