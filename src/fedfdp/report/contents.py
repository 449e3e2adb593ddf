"""What a report shows, read from run folders into one plain record that has a place in JSON.

Numbers pass through as they are stored; what is missing or no number is None. Nothing is estimated.
"""

import math
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedfdp.report.compare import differing, fronts, over_seeds
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.tracking import flat

CURVES = ("accuracy", "loss", "psi", "epsilon", "worst_accuracy", "worst_loss")
RESULTS = (
    "accuracy", "worst_accuracy", "worst_10_percent", "std_accuracy", "jain", "psi", "psi_train", "psi_local",
    "loss", "worst_loss", "epsilon", "delta", "epsilon_budget", "sigma", "accountant", "seconds", "records", "weights",
)  # fmt: skip
MOST_EVALUATIONS = 100  # of every single client; the curves of all clients together keep every one


def document(folders: list[RunFolder]) -> dict[str, Any]:
    """All that a page about these runs shows."""
    folders = list({folder.path.resolve(): folder for folder in folders}.values())
    runs = [
        {"number": number, "name": name, **_run(folder)}
        for number, (name, folder) in enumerate(zip(_names(folders), folders, strict=True), start=1)
    ]
    made = {
        "version": version("fedfdp"),
        "runs": runs,
        "differing": differing(runs),
        "front": fronts(runs),
        "seeds": over_seeds(runs),
    }
    clean: dict[str, Any] = _finite(made)
    return clean


def _run(folder: RunFolder) -> dict[str, Any]:
    config = folder.config()
    history = [e for e in folder.metrics() if isinstance(e, dict) and isinstance(e.get("round"), int)]
    settings = flat(config)
    last = history[-1] if history else {}
    summary = folder.summary() if folder.finished else last
    result = {name: summary.get(name) for name in RESULTS}
    if not folder.finished:  # a summary holds these; before there is one, the settings do
        result |= {name: settings.get(f"privacy.{name}") for name in ("delta", "sigma", "accountant")}
        result["epsilon_budget"] = settings.get("privacy.epsilon")
    privacy = folder.privacy()
    clients = _clients(folder, privacy, history)
    return {
        "folder": str(folder.path),
        "finished": folder.finished,
        "round": summary.get("rounds", last.get("round", 0)),
        "rounds": settings.get("rounds"),
        "method": summary.get("algorithm") or settings.get("algorithm.name"),
        "data": summary.get("data") or settings.get("data.source"),
        "seed": None if settings.get("seed") is None else str(settings["seed"]),
        "elsewhere": "flower" in (summary.get("engine"), settings.get("engine")),
        "evaluated": summary.get("evaluated_clients"),
        "private": privacy is not None or settings.get("privacy.delta") is not None,
        "metric": summary.get("metric") or settings.get("metric") or "loss",  # what Ψ is the variance of
        "result": result,
        # As text: a seed of 64 bits does not survive as one of JavaScript's numbers.
        "settings": {name: "–" if value is None else str(value) for name, value in settings.items()},
        "history": {"round": [e.get("round") for e in history]} | {n: [e.get(n) for e in history] for n in CURVES},
        "clients": clients,
        "privacy": privacy,
    }


def _clients(folder: RunFolder, privacy: dict[str, Any] | None, history: list[dict[str, Any]]) -> dict[str, Any]:
    """Each client's name and records, and how the model served it at the evaluations that are kept."""
    held = folder.clients() or {}
    step = max(1, math.ceil(len(history) / MOST_EVALUATIONS))
    kept = history[::-1][::step][::-1]
    served = {name: [(e.get("clients") or {}).get(name) or [] for e in kept] for name in ("accuracy", "loss")}
    accounts = privacy["clients"] if privacy else []
    names = held.get("names") or [account["client"] for account in accounts]
    count = max([len(names), *(len(values) for rows in served.values() for values in rows)])
    facts = {"train": [account["records"] for account in accounts]} | held
    of_each = {name: value if value and len(value) == count else None for name, value in facts.items()}
    return {
        "names": [*names, *(f"client {i}" for i in range(len(names), count))],
        "train": of_each.get("train"),
        "test": of_each.get("test"),
        "classes": of_each.get("classes"),
        "noted": bool(held),
        "round": [entry.get("round") for entry in kept],
        **served,
    }


def _names(folders: list[RunFolder]) -> list[str]:
    """The folders' names, with as much of the path before them as tells them apart."""
    paths = [folder.path.resolve() for folder in folders]
    depth = dict.fromkeys(paths, 1)
    while True:
        names = {path: str(Path(*path.parts[-depth[path] :])) for path in paths}
        shared = Counter(names.values())
        twice = [p for p in paths if shared[names[p]] > 1 and depth[p] < len(p.parts)]
        if not twice:
            return [names[path] for path in paths]
        for path in twice:
            depth[path] += 1


def _finite(value: Any) -> Any:
    """NaN and infinities have no place in JSON: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
