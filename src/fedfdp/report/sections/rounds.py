"""Every metric that has a curve, over the rounds."""

from fedfdp.fairness.metrics import METRICS
from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    names = ["round", *(name for name, metric in METRICS.items() if metric.curve is not None)]
    return {"history": {name: [entry.get(name) for entry in run.history] for name in names}}


SECTION = Section("rounds", "Over the rounds", _of_run)
