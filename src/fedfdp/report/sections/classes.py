"""How well each class is recognised, at the last evaluation, with the classes' own names."""

from fedfdp.fairness.metrics.intervals import wilson
from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    found = run.summary.get("classes")
    if not isinstance(found, dict):
        return {"by_class": None}
    recall = [float("nan") if value is None else value for value in found["recall"]]
    low, high = wilson(recall, found["records"])
    return {"by_class": {**found, "recall_low": low.tolist(), "recall_high": high.tolist()}}


SECTION = Section("classes", "Classes", _of_run)
