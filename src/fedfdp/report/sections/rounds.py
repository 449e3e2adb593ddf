"""Every metric that has a curve, over the rounds."""

from fedfdp.fairness.metrics import METRICS
from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    drawn = [metric for metric in METRICS.values() if metric.curve is not None]
    names = ["round", *(m.name for m in drawn), *(end for m in drawn for end in m.interval or ())]
    return {"history": {name: [entry.get(name) for entry in run.history] for name in names}}


SECTION = Section("rounds", "Over the rounds", _of_run)
