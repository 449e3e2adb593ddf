"""How groups of a declared column compare, over all test records and at each client."""

from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    found = run.summary.get("groups")
    if not isinstance(found, dict):
        return {"by_group": None}
    clients = run.history[-1].get("clients", {}) if run.history else {}
    gaps = {name: clients.get(name) for name in ("parity_gap", "opportunity_gap")}
    return {"by_group": {**found, **{name: run.summary.get(name) for name in gaps}, "clients": gaps}}


SECTION = Section("groups", "Groups", _of_run)
