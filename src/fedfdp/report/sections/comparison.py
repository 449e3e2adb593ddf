"""Runs beside each other: where their settings differ, which of them none beats, and their means over seeds.

Pure comparison of what a report has read; nothing is run or read here.
"""

import math
import statistics

from fedfdp.fairness.metrics import METRICS
from fedfdp.report.section import Json, Section

# Settings that say how a run is named or watched, not what it computes.
ASIDE = {"name", "seed", "data.seed", "threads", "eval_every", "device"}


def differing(runs: list[Json]) -> list[str]:
    """The settings, other than the name, in which not all runs agree."""
    names = dict.fromkeys(name for run in runs for name in run["settings"])
    return [n for n in names if n != "name" and len({run["settings"].get(n) for run in runs}) > 1]


def fronts(runs: list[Json]) -> list[int]:
    """Numbers of the runs that no other on the same data, dealt out in the same way, beats in accuracy, Ψ and ε.

    A beats B when it is at least as good in all three and better in one; no privacy is ε = ∞. Where there is no
    accuracy, as in regression, the loss stands for it. Only finished runs with both measures take part.
    """
    points = {run["number"]: ((run["data"], run["partition"]), _merits(run)) for run in runs if run["finished"]}
    known = {number: (data, merits) for number, (data, merits) in points.items() if merits is not None}
    return [
        number
        for number, (data, mine) in known.items()
        if not any(other == data and _beats(theirs, mine) for other, theirs in known.values())
    ]


def over_seeds(runs: list[Json]) -> list[Json]:
    """Finished runs that differ only in their seeds: means and sample standard deviations; single runs are left out."""
    groups: dict[tuple[object, ...], list[Json]] = {}
    for run in runs:
        if run["finished"]:
            settings = sorted((name, value) for name, value in run["settings"].items() if name not in ASIDE)
            groups.setdefault((run["data"], *settings), []).append(run)
    return [_group(group) for group in groups.values() if len(group) > 1]


def _group(group: list[Json]) -> Json:
    mean: dict[str, float | None] = {}
    spread: dict[str, float | None] = {}
    for name in [name for name, metric in METRICS.items() if metric.column is not None and metric.better is not None]:
        values = [run["result"][name] for run in group]
        known = all(_number(value) for value in values)
        mean[name] = statistics.fmean(values) if known else None
        spread[name] = statistics.stdev(values) if known else None
    return {
        "runs": [run["number"] for run in group],
        "method": group[0]["method"],
        "data": group[0]["data"],
        "mean": mean,
        "spread": spread,
    }


def _merits(run: Json) -> tuple[float, float, float] | None:
    """What counts, the more the better."""
    result = run["result"]
    served = result["accuracy"] if _number(result["accuracy"]) else result["loss"] and -result["loss"]
    if not _number(served) or not _number(result["psi"]):
        return None
    return served, -result["psi"], -result["epsilon"] if _number(result["epsilon"]) else -math.inf


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


SECTION = Section(
    "comparison",
    "Comparison",
    of_runs=lambda runs: {"differing": differing(runs), "front": fronts(runs), "seeds": over_seeds(runs)},
)
