"""What is printed at the end of a run: its numbers, what they come to, how each class and each client is served.

The metrics, their labels and their intervals come from the registry.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from fedfdp.fairness.metrics import METRICS, Metric, Task, number, shown, told
from fedfdp.fairness.metrics.verdict import verdict
from fedfdp.privacy.unit import Unit

LONGEST_NAME = 24
MOST_CLASSES = 20  # shown one by one
MOST_CONFUSED = 8  # whose confusion matrix fits a terminal
_BLOCKS = " ▏▎▍▌▋▊▉█"


def show_result(console: Console, summary: Mapping[str, Any], measured: Mapping[str, Any], names: list[str]) -> None:
    """Prints a run's result; `measured` are the last evaluation's values of the clients, whose names these are."""
    found = lines(summary)
    width = max(len(name) for name, *_ in found)
    for name, value, beside in found:
        _print(console, f"{name:<{width}}  {value}{f'  ({beside})' if beside else ''}")
    for sentence in verdict(summary):
        _print(console, f"note: {sentence}")
    for name, why in summary.get("robust", {}).get("named", {}).items():
        _print(console, f"may be poisoned: {_short(name)}: {why}")
    if classes := summary.get("classes"):
        _print(console, by_class(classes))
    if groups := summary.get("groups"):
        _print(console, by_group(groups))
    _print(console, by_client(measured, names))


def lines(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Label, value and what belongs beside it."""
    task: Task = "regression" if summary["task"]["classes"] is None else "classification"
    found = [
        (told(metric.result or "", summary["metric"]), metric.text(summary.get(metric.name)), _beside(metric, summary))
        for metric in shown("result", task)
        if metric.name in summary
    ]
    if summary["epsilon"] is not None:
        one = Unit(summary["unit"]).one
        found.append(("privacy", f"ε = {summary['epsilon']:.4f} at δ = {summary['delta']:g}, for every {one}", ""))
    else:
        found.append(("privacy", "none", ""))
    if answered := summary.get("evaluated_clients"):
        nodes = "1 node" if answered == 1 else f"{answered} nodes"
        found.append(("evaluation", f"exact test measures left {nodes} un-noised: test records are not protected", ""))
    return [*found, ("rounds", f"{summary['rounds']} in {clock(summary['seconds'])}", "")]


def _beside(metric: Metric, summary: Mapping[str, Any]) -> str:
    if metric.interval is not None:
        low, high = (summary.get(end) for end in metric.interval)
        return "" if low is None or high is None else f"95 % interval {low:.1%} to {high:.1%}"
    if metric.name == "baseline_accuracy" and summary.get("classes"):
        return f"{summary['classes']['constant']!r} for every record"
    if metric.name in ("alone_accuracy", "alone_rmse"):
        return "own model, own records, no noise: a reference, never released"
    if metric.name in ("better_alone", "better_alone_rmse"):
        return f"of {summary['clients']} clients"
    return ""


def by_class(classes: Mapping[str, Any]) -> str:
    """A bar for each class that occurs, and the confusion matrix of few classes."""
    names = [_short(name) for name in classes["names"]]
    rows = list(zip(names, classes["recall"], classes["records"], strict=True))
    if len(rows) > MOST_CLASSES:
        return ""
    width = max(map(len, names))
    bars = [
        f"  {name:<{width}}  {_bar(recall, 30)} {recall:6.1%}  of {records:,} records"
        for name, recall, records in rows
        if recall is not None
    ]
    matrix = classes["confusion"]
    if matrix is None or len(names) > MOST_CONFUSED:
        return "\n".join(["recall by class", *bars])
    cells = [[f"{count:,}" for count in row] for row in matrix]
    widths = [max(len(name), *(len(row[k]) for row in cells)) for k, name in enumerate(names)]
    head = "  ".join(f"{name:>{w}}" for name, w in zip(names, widths, strict=True))
    body = [
        f"  {name:<{width}}  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True))
        for name, row in zip(names, cells, strict=True)
    ]
    title = "records of each class (rows) by the model's answer (columns)"
    return "\n".join(["recall by class", *bars, title, f"  {'':<{width}}  {head}", *body])


def by_group(groups: Mapping[str, Any]) -> str:
    """How often each group gets the favourable class, and among the records that are of it."""
    names = [_short(name) for name in groups["names"]]
    width = max(map(len, names))
    rows = zip(
        names, groups["given"], groups["records"], groups["recognised"], groups["favourable_records"], strict=True
    )
    lines = [
        f"  {name:<{width}}  {given:6.1%} of {records:,}"
        + ("" if recognised is None else f"; {recognised:6.1%} of the {favourable:,} that are")
        for name, given, records, recognised, favourable in rows
        if given is not None
    ]
    return "\n".join([f"given {groups['favourable']!r}, by {groups['column']}", *lines])


def by_client(measured: Mapping[str, Sequence[float | None]], names: Sequence[str] | None, most: int = 20) -> str:
    """A bar for each client, the worst first when there are many: accuracies, or errors where there are no classes."""
    classed = any(value is not None for value in measured["accuracy"])
    metric = METRICS["accuracy" if classed else "rmse" if "rmse" in measured else "loss"]
    values = measured[metric.name]
    labels = names if names and len(names) == len(values) else [str(i) for i in range(len(values))]
    unknown = [None] * len(values)
    low, high = (measured.get(end, unknown) for end in metric.interval or ("", ""))
    known = [row for row in zip(labels, values, low, high, strict=True) if row[1] is not None]
    if not known:
        return ""
    bars = known
    if len(known) > most:
        bars = sorted(known, key=lambda row: row[1] or 0.0, reverse=metric.better == "lower")[:most]
    title = "by client" if len(known) <= most else f"of the {most} worst of {len(known)} clients"
    width = min(LONGEST_NAME, max(len(label) for label, *_ in bars))
    full = 1.0 if classed else max(value or 0.0 for _, value, *_ in bars) or 1.0
    found = []
    for label, value, least, greatest in bars:
        assert value is not None
        text = f"{value:6.1%}" if classed else number(value)
        between = "" if least is None or greatest is None else f"  {least:.0%} to {greatest:.0%}"
        found.append(f"  {_short(label):<{width}}  {_bar(value / full, 30)} {text}{between}")
    beside = " (beside it its 95 % interval)" if any(row[2] is not None for row in bars) else ""
    return "\n".join([f"{metric.title} {title}{beside}", *found])


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _print(console: Console, text: str) -> None:
    if text:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _bar(fraction: float, width: int) -> str:
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[part] if part else "")).ljust(width)
