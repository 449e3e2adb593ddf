"""Each client's name and records, how the model served it, and whose updates stood out under a robust mean."""

import math

from fedfdp.fairness.metrics import METRICS
from fedfdp.report.section import Json, Section, StoredRun

MOST_EVALUATIONS = 100  # of every single client; the curves of all clients together keep every one


def _of_run(run: StoredRun) -> Json:
    held = run.folder.clients() or {}
    step = max(1, math.ceil(len(run.history) / MOST_EVALUATIONS))
    kept = run.history[::-1][::step][::-1]
    names = [name for name, metric in METRICS.items() if metric.by_client]
    names += [end for name in names for end in METRICS[name].interval or ()]
    served = {name: [(entry.get("clients") or {}).get(name) or [] for entry in kept] for name in names}
    accounts = run.privacy["clients"] if run.privacy else []
    clients = held.get("names") or [account["client"] for account in accounts]
    count = max([len(clients), *(len(values) for rows in served.values() for values in rows)])
    facts = {"train": [account["records"] for account in accounts]} | held
    of_each = {name: value if value and len(value) == count else None for name, value in facts.items()}
    found = {
        "names": [*clients, *(f"client {i}" for i in range(len(clients), count))],
        "train": of_each.get("train"),
        "test": of_each.get("test"),
        "classes": of_each.get("classes"),
        "class_names": held.get("class_names"),
        "noted": bool(held),
        "round": [entry.get("round") for entry in kept],
    }
    return {"clients": found | served, "robust": run.summary.get("robust")}


SECTION = Section("clients", "Clients", _of_run)
