"""What one run reached: its metrics and what else it keeps, as the registry declares them."""

from fedfdp.fairness.metrics import METRICS
from fedfdp.fairness.metrics.verdict import verdict
from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    result = {name: run.summary.get(name) for name in METRICS}
    if not run.folder.finished:  # a summary holds these; before there is one, the settings do
        result |= {name: run.settings.get(f"privacy.{name}") for name in ("delta", "sigma", "accountant")}
        result |= {"epsilon_budget": run.settings.get("privacy.epsilon"), "rounds": run.summary.get("round")}
    return {"result": result, "verdict": verdict(run.summary)}


SECTION = Section("summary", "Summary", _of_run)
