"""What a person sees of a run: a live line while it goes on, on stderr, and the result at its end.

The metrics and their labels come from the registry.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedfdp.cli.result import clock, show_result
from fedfdp.core.settings import left_out
from fedfdp.fairness.metrics import shown, values_task
from fedfdp.runs.config import Config
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.session import Result, Update

SECONDS_BETWEEN_LOOKS = 0.5


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
            print(f"round {step.round}/{step.rounds}  {self.seen}  {clock(left)} left", file=sys.stderr, flush=True)

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
        """The result, and how the model serves each class and each client."""
        console = Console()
        known = RunFolder(result.folder).clients() if result.folder is not None else None
        show_result(console, result.summary, result.history[-1]["clients"], known["names"] if known else [])
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
