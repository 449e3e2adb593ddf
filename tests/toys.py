"""Two metrics that exist only within a test: one of the clients' results, one of their outputs."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from fedfdp.fairness.metrics import METRICS, Curve, Metric, of_results
from fedfdp.fairness.metrics.outputs import FUNCTIONS, of_outputs
from fedfdp.fairness.metrics.results import COMPUTED


@contextmanager
def toy_metrics() -> Iterator[None]:
    """Declares them, and takes them back at the end."""
    kept = [(registry, dict(registry)) for registry in (METRICS, COMPUTED, FUNCTIONS)]

    @of_results(
        Metric(
            "median_loss", "median client", "number", "median of the clients' test losses", better="lower",
            line="median", result="median client", column="median", curve=Curve("Median loss", "median"),
        )
    )  # fmt: skip
    def median_loss(r):
        return float(np.median(r.losses))

    @of_outputs(Metric("zeros", "zeros", "percent", "share of records taken for a zero", tasks=("classification",)))
    def zeros(outputs, targets):
        return (outputs.argmax(1) == 0).double().mean()

    try:
        yield
    finally:
        for registry, before in kept:
            registry.clear()
            registry.update(before)
