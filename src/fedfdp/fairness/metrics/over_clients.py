"""How well and how equally a model serves the clients: the metrics that are computed of their results."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedfdp.fairness.metrics.registry import Curve, Metric, Task, register
from fedfdp.fairness.metrics.results import OWN, ClientResults, of_results

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


@of_results(
    Metric(
        "accuracy", "accuracy", "percent", "share of all test records that are right",
        better="higher", tasks=CLASSES, by_client=True, line="accuracy", result="test accuracy", column="accuracy",
        curve=Curve("Test accuracy", "all test records"),
    )
)  # fmt: skip
def _accuracy(r: ClientResults) -> float:
    return float(np.average(r.accuracies, weights=r.records))


@of_results(
    Metric(
        "loss", "loss", "number", "mean over the clients' test losses, by their training records",
        better="lower", stands_for="accuracy", by_client=True, line="loss", result="test loss", column="loss",
        curve=Curve("Test loss", "mean"),
    )
)  # fmt: skip
def _loss(r: ClientResults) -> float:
    return float(np.average(r.losses, weights=r.shares))


@of_results(
    Metric(
        "worst_accuracy", "worst client", "percent", "accuracy at the client where it is lowest",
        better="higher", tasks=CLASSES, line="worst", result="worst client", column="worst",
        curve=Curve("Test accuracy", "worst client"),
    )
)  # fmt: skip
def _worst_accuracy(r: ClientResults) -> float:
    return float(r.accuracies.min())


@of_results(
    Metric(
        "worst_loss", "worst client's loss", "number", "loss at the client where it is highest",
        better="lower", stands_for="worst_accuracy", line="worst", result="worst client", column="worst loss",
        curve=Curve("Test loss", "worst client"),
    )
)  # fmt: skip
def _worst_loss(r: ClientResults) -> float:
    return float(r.losses.max())


@of_results(
    Metric(
        "worst_10_percent", "worst tenth of clients", "percent", "mean accuracy of the tenth of clients served worst",
        better="higher", tasks=CLASSES,
    )
)  # fmt: skip
def _worst_tenth(r: ClientResults) -> float:
    return worst_share(r.accuracies)


@of_results(
    Metric(
        "std_accuracy", "spread over clients (standard deviation)", "percent",
        "standard deviation of the clients' accuracies", better="lower", tasks=CLASSES,
    )
)  # fmt: skip
def _std_accuracy(r: ClientResults) -> float:
    return float(r.accuracies.std())


@of_results(
    Metric(
        "jain", "Jain's index of the accuracies", "number", "1 when all clients have the same accuracy, less otherwise",
        better="higher", tasks=CLASSES,
    )
)  # fmt: skip
def _jain(r: ClientResults) -> float:
    return jain(r.accuracies)


@of_results(
    Metric(
        "psi", "Ψ test", "number", "variance of the clients' test {metric}",
        better="lower", line="Ψ", result="Ψ{of} (test)", column="Ψ test",
        curve=Curve("Ψ", "Ψ", log=True,
                    note="Variance of the clients' test {metric}: the lower, the more equally they are served."),
    )
)  # fmt: skip
def _psi(r: ClientResults) -> float:
    return psi(r.judged_by, r.shares, r.noise if r.metric == "loss" else None)


# Ψ of other values than the test's: `training/rounds.py` computes them.
register(
    Metric(
        "psi_train", "Ψ train", "number", "variance of the clients' {metric} on their training records, at the end",
        better="lower", result="Ψ{of} (train)", column="Ψ train",
    )
)  # fmt: skip
register(
    Metric(
        "psi_local", "Ψ of local models", "number", "variance of the losses of the clients' own models after a round",
        better="lower",
    )
)  # fmt: skip

# The run's own function, `metric=package.module:function`: a metric of outputs that `fairness.performance` gives.
register(Metric(OWN, "{metric}", "number", "mean over the clients, weighted by their training records", by_client=True))


@of_results(Metric("lowest_performance", "lowest {metric}", "number", "at the client where it is lowest", needs=OWN))
def _lowest(r: ClientResults) -> float:
    return float(r.of_outputs[OWN].min())


@of_results(Metric("highest_performance", "highest {metric}", "number", "at the client where it is highest", needs=OWN))
def _highest(r: ClientResults) -> float:
    return float(r.of_outputs[OWN].max())


@of_results(
    Metric(
        "std_performance", "spread of {metric} (standard deviation)", "number", "standard deviation over the clients",
        better="lower", needs=OWN,
    )
)  # fmt: skip
def _std(r: ClientResults) -> float:
    return float(r.of_outputs[OWN].std())
