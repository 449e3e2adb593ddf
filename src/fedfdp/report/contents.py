"""What a report shows, read from run folders into one plain record that has a place in JSON.

Numbers pass through as they are stored; what is missing or no number is None. Nothing is estimated. The sections
(`sections/`) read their parts of it; titles, forms and places of the metrics come from the registry.
"""

import math
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from fedfdp.fairness.metrics import METRICS, shown
from fedfdp.fairness.metrics.registry import TASKS, Place
from fedfdp.report.section import Json, StoredRun
from fedfdp.report.sections import SECTIONS
from fedfdp.runs.folder import RunFolder


def document(folders: list[RunFolder]) -> Json:
    """All that a page about these runs shows."""
    folders = list({folder.path.resolve(): folder for folder in folders}.values())
    runs = [
        {"number": number, "name": name, **_run(StoredRun.read(folder))}
        for number, (name, folder) in enumerate(zip(_names(folders), folders, strict=True), start=1)
    ]
    _number_partitions(runs, [folder.identity().get("data") for folder in folders])
    found = {
        "version": version("fedfdp"),
        "metrics": {name: asdict(metric) for name, metric in METRICS.items()},
        "shown": {task: {place: [m.name for m in shown(place, task)] for place in get_args(Place)} for task in TASKS},
        "sections": [{"name": s.name, "title": s.title, "compares": s.of_runs is not None} for s in SECTIONS],
        "runs": runs,
    }
    for section in SECTIONS:
        if section.of_runs is not None:
            found = _joined(found, section.of_runs(runs), section.name)
    return {name: _finite(value) for name, value in found.items()}


def _run(run: StoredRun) -> Json:
    settings, summary = run.settings, run.summary
    found: Json = {
        "folder": str(run.folder.path),
        "finished": run.folder.finished,
        "round": summary.get("rounds", run.history[-1]["round"] if run.history else 0),
        "rounds": settings.get("rounds"),
        "method": summary.get("algorithm") or settings.get("algorithm.name"),
        "data": summary.get("data") or settings.get("data.source"),
        "seed": None if settings.get("seed") is None else str(settings["seed"]),
        "elsewhere": "flower" in (summary.get("engine"), settings.get("engine")),
        "evaluated": summary.get("evaluated_clients"),
        "private": run.privacy is not None or settings.get("privacy.delta") is not None,
        "metric": summary.get("metric") or settings.get("metric") or "loss",  # what Ψ is the variance of
        "task": "classification" if any(_known(e.get("accuracy")) for e in [summary, *run.history]) else "regression",
    }
    for section in SECTIONS:
        found = _joined(found, section.of_run(run), section.name)
    return found


def _number_partitions(runs: list[Json], digests: list[object]) -> None:
    """Numbers those that hold the same records at the same clients; the digests themselves tell of records."""
    numbers = {digest: number for number, digest in enumerate(dict.fromkeys(digests), start=1)}
    for run, digest in zip(runs, digests, strict=True):
        run["partition"] = numbers[digest]


def _joined(found: Json, part: Json, section: str) -> Json:
    if taken := found.keys() & part.keys():
        raise ValueError(f"report section {section!r} gives {sorted(taken)}, which is there already; rename it")
    return found | part


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


def _known(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _finite(value: object) -> object:
    """NaN and infinities have no place in JSON: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
