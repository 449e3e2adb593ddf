"""What a person sees of a run: a live line while it goes on, on stderr, and the result at its end.

The metrics and their labels come from the registry.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedfdp.core.settings import left_out
from fedfdp.fairness.metrics import METRICS, Task, number, shown, told, values_task
from fedfdp.runs.config import Config
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.session import Result, Update

LONGEST_NAME = 24
SECONDS_BETWEEN_LOOKS = 0.5
_BLOCKS = " ▏▎▍▌▋▊▉█"


class Watcher:
    """Follows a run: on a terminal a bar with the time left, elsewhere a line for each evaluation."""

    def __init__(self, config: Config) -> None:
        self.config, self.console = config, Console(stderr=True)
        columns = (
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[seen]}"),
            TimeRemainingColumn(compact=True),
        )
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=config.rounds, seen="starting")
        self.started: tuple[float, int] | None = None
        self.looked, self.seen = 0.0, ""

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes the bar away."""
        self.bar.stop()

    def __call__(self, update: Update) -> None:
        step = update.step
        now = time.monotonic()
        if self.started is None:  # now that a round is done, nothing is left to be refused
            self.started = (now, step.round)
            self._announce(update)
        if step.evaluation is not None or now - self.looked > SECONDS_BETWEEN_LOOKS:
            self.looked, self.seen = now, _seen(update)  # computing ε may take longer than a round
        self.bar.update(self.task, completed=step.round, total=step.rounds, seen=self.seen)
        if step.evaluation is not None and not self.console.is_terminal:
            first, since = self.started[1], now - self.started[0]
            left = since / max(step.round - first, 1) * (step.rounds - step.round)
            print(f"round {step.round}/{step.rounds}  {self.seen}  {_clock(left)} left", file=sys.stderr, flush=True)

    def _announce(self, update: Update) -> None:
        private, data = self.config.privacy, self.config.data
        budget = f"ε ≤ {update.budget:g}" if private else "not private"
        if private and not left_out(private, "delta"):  # across machines it is chosen when the nodes are there
            budget += f" at δ = {private.delta:g}"
        source = Path(data.source)
        column = data.column or data.holder or ("file" if source.is_dir() else None)
        clients = f"{data.clients} clients" if column is None else f"clients by {column}"
        kind = type(self.config.algorithm).__name__
        text = f"{kind} on {source.name}, {clients}, {update.step.rounds} rounds, {budget}"
        self.console.print(text, highlight=False)
        self.bar.start()

    def show(self, result: Result) -> None:
        """The result, and how the model serves each client."""
        console, summary = Console(), result.summary
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in _lines(summary, self.config.data.unit or "record"):
            table.add_row(name, value)
        console.print(table, highlight=False)
        known = RunFolder(result.folder).clients() if result.folder is not None else None
        bars = _per_client(result.history[-1]["clients"], known["names"] if known else None)
        console.print(bars, highlight=False, markup=False, soft_wrap=True)
        if result.folder is not None:
            console.print(
                f"\nkept in {result.folder}; compare runs with: fedfdp show {result.folder} …", highlight=False
            )


def headline(values: Mapping[str, float | None]) -> str:
    """The main metrics of an evaluation or a summary, on one line."""
    there = [metric for metric in shown("line", values_task(values)) if values.get(metric.name) is not None]
    return "  ".join(f"{metric.line} {metric.text(values[metric.name])}" for metric in there)


def _seen(update: Update) -> str:
    """The last evaluation, and the ε spent of the budget."""
    parts = [headline(update.history[-1])] if update.history else []
    if update.epsilon is not None and update.budget is not None:
        parts.append(f"ε {update.epsilon:.2f} of {update.budget:g}")
    return "  ".join(parts)


def _lines(summary: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    task: Task = "regression" if summary["task"]["classes"] is None else "classification"
    lines = [
        (told(metric.result or "", summary["metric"]), metric.text(summary.get(metric.name)))
        for metric in shown("result", task)
    ]
    if summary["epsilon"] is not None:
        lines.append(("privacy", f"ε = {summary['epsilon']:.4f} at δ = {summary['delta']:g}, for every {unit}"))
    else:
        lines.append(("privacy", "none"))
    if answered := summary.get("evaluated_clients"):
        nodes = "1 node" if answered == 1 else f"{answered} nodes"
        lines.append(("evaluation", f"exact test measures left {nodes} un-noised: test records are not protected"))
    lines.append(("rounds", f"{summary['rounds']} in {_clock(summary['seconds'])}"))
    return lines


def _per_client(measured: Mapping[str, list[float | None]], names: list[str] | None, most: int = 20) -> str:
    """A bar for each client, the worst first when there are many: accuracies, or losses where there are no classes."""
    classed = any(value is not None for value in measured["accuracy"])
    metric = METRICS["accuracy" if classed else "loss"]
    values = measured[metric.name]
    labels = names if names and len(names) == len(values) else [str(i) for i in range(len(values))]
    known = [(label, value) for label, value in zip(labels, values, strict=True) if value is not None]
    if not known:
        return ""
    bars = known
    if len(known) > most:
        bars = sorted(known, key=lambda pair: pair[1], reverse=metric.better == "lower")[:most]
    title = "by client" if len(known) <= most else f"of the {most} worst of {len(known)} clients"
    width = min(LONGEST_NAME, max(len(label) for label, _ in bars))
    full = 1.0 if classed else max(value for _, value in bars) or 1.0
    lines = [
        f"  {_short(label):<{width}}  {_bar(value / full, 30)} {f'{value:.1%}' if classed else number(value)}"
        for label, value in bars
    ]
    return "\n".join([f"{metric.title} {title}", *lines])


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _bar(fraction: float, width: int) -> str:
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[part] if part else "")).ljust(width)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
