"""A model's results at each client, and the metrics that are computed of them. All of it is raw: it is measured in a
simulation, or given by nodes whose owners agreed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfdp.fairness.metrics.answers import OF_ANSWERS, OF_ONE_CLIENT, Answers, there
from fedfdp.fairness.metrics.intervals import wilson
from fedfdp.fairness.metrics.registry import METRICS, Metric, register

Floats = NDArray[np.float64]
OWN = "performance"  # the name under which the values of the run's own function are kept


@dataclass(frozen=True)
class ClientResults:
    """One model's results on each client's own data: mean loss, accuracy (NaN in regression), records, and p_i."""

    losses: Floats  # each client's mean loss
    accuracies: Floats  # NaN in regression
    records: NDArray[np.int64]  # that each client was judged by: those in which something counts
    shares: Floats  # p_i = n_i / Σ n_j
    metric: str = "loss"  # Ψ is its variance over clients: loss, accuracy, another of outputs, or a function's name
    of_outputs: dict[str, Floats] = field(default_factory=dict)  # by name: the metrics computed of clients' outputs
    noise: Floats | None = None  # the variance of the noise on each loss, where they were released under privacy
    answers: Answers | None = None  # the model's answers themselves, in a simulation; None across machines

    def served(self) -> "ClientResults":
        """Without the clients that have no record to be judged by."""
        keep = self.records > 0
        return replace(
            self,
            losses=self.losses[keep],
            accuracies=self.accuracies[keep],
            records=self.records[keep],
            shares=self.shares[keep],
            of_outputs={name: values[keep] for name, values in self.of_outputs.items()},
            noise=None if self.noise is None else self.noise[keep],
        )

    @property
    def judged_by(self) -> Floats:
        """What Ψ is the spread of, at each client; NaN where nobody computed it."""
        if OWN in self.of_outputs:
            return self.of_outputs[OWN]
        known = {"loss": self.losses, "accuracy": self.accuracies, **self.of_outputs}
        return known.get(self.metric, np.full_like(self.losses, np.nan))

    def by_client(self) -> dict[str, Floats]:
        """Every metric that is kept for each client, by name; NaN where it has no value."""
        low, high = wilson(self.accuracies, self.records)
        found = {"loss": self.losses, "accuracy": self.accuracies, "accuracy_low": low, "accuracy_high": high}
        if self.answers is not None:
            kept = there(self.answers, OF_ONE_CLIENT)
            parts = self.answers.by_client(len(self.records)) if kept else []
            for name in kept:
                found[name] = np.array([OF_ANSWERS[name](part) if len(part) else math.nan for part in parts])
        return found | self.of_outputs


Compute = Callable[[ClientResults], float]
COMPUTED: dict[str, Compute] = {}


def of_results(metric: Metric) -> Callable[[Compute], Compute]:
    """Declares a function of the clients' results, those without records left out, as this metric."""

    def declare(compute: Compute) -> Compute:
        register(metric)
        COMPUTED[metric.name] = compute
        return compute

    return declare


def measures(results: ClientResults) -> dict[str, float]:
    """Every metric of a model's results, by name: fractions, not per cent; accuracies are NaN in regression.

    The value of a metric of outputs is its mean over the clients, weighted by p_i.
    """
    r = results.served()
    asked = [name for name in COMPUTED if (needed := METRICS[name].needs) is None or needed in r.of_outputs]
    if not len(r.records):
        return dict.fromkeys([*r.of_outputs, *asked], math.nan)
    means = {name: float(np.average(values, weights=r.shares)) for name, values in r.of_outputs.items()}
    whole = r.answers
    answered = {} if whole is None else {name: OF_ANSWERS[name](whole) for name in there(whole, OF_ANSWERS)}
    return means | {name: COMPUTED[name](r) for name in asked} | answered
