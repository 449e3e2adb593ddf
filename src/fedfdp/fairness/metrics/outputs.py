"""Metrics that are computed of one client's outputs and targets, such as F1 or AUC: one number for each client.

They cost a second pass over the records. Across machines there are none: a node answers with loss and accuracy alone.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from fedfdp.fairness.metrics.registry import Metric, register

OfOutputs = Callable[[Tensor, Tensor], object]  # (outputs, targets) of all of a client's records → one number
FUNCTIONS: dict[str, OfOutputs] = {}  # by the metric's name


def of_outputs(metric: Metric) -> Callable[[OfOutputs], OfOutputs]:
    """Declares a function of one client's outputs and targets as this metric.

    Every evaluation computes it, `metric=<its name>` makes Ψ the spread of it, and its mean over the clients, weighted
    by p_i, is kept under its name. Functions of the clients' values, such as the lowest, are declared with `of_results`
    and `needs=<its name>`.
    """

    def declare(function: OfOutputs) -> OfOutputs:
        register(replace(metric, by_client=True))
        FUNCTIONS[metric.name] = function
        return function

    return declare
