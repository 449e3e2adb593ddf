"""The declaration of a metric and the registry of all of them. It computes nothing and knows no run.

Whoever shows a number asks here for its title, its form and its place, and keeps no list of names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Task = Literal["classification", "regression"]
Form = Literal["percent", "number", "epsilon", "delta", "count", "seconds", "text"]
Place = Literal["line", "result", "column", "curve"]

TASKS: tuple[Task, ...] = ("classification", "regression")
RESERVED = ("round", "clients", "classes", "groups")  # what else an entry of metrics.jsonl holds
_FORMATS = {"percent": "{:.2%}", "epsilon": "{:.3f}", "delta": "{:g}", "seconds": "{:.0f}", "count": "{}", "text": "{}"}


@dataclass(frozen=True)
class Curve:
    """How a metric is drawn over the rounds. Metrics that name the same figure share it; the first one leads it."""

    figure: str  # the figure's title
    label: str  # of this metric's line in it
    note: str = ""  # a sentence below the title
    log: bool = False  # a log scale where all values are above 0
    zero: bool = False  # the axis starts at 0


@dataclass(frozen=True)
class Metric:
    """One number that runs keep. In its texts {metric} stands for what Ψ is the spread of; see `told`."""

    name: str  # in metrics.jsonl and summary.json
    title: str  # in the report
    form: Form  # how it is written
    about: str  # what it is, in one sentence
    better: Literal["higher", "lower"] | None = None  # None: neither, or not known
    tasks: tuple[Task, ...] = TASKS  # where it exists
    stands_for: str | None = None  # the metric in whose place it is shown, for tasks that do not have that one
    # The metric of outputs of whose values it is computed, or `groups`; left out where a run has none.
    needs: str | None = None
    by_client: bool = False  # whether metrics.jsonl holds each client's value too
    interval: tuple[str, str] | None = None  # the metrics that are the ends of its 95 % interval
    # Where it is shown, as the label it has there; None: not there.
    line: str | None = None  # the line of a run that goes on, and the first numbers of the report
    result: str | None = None  # what is printed at the end of a run
    column: str | None = None  # tables of several runs
    curve: Curve | None = None  # the report's figures over the rounds

    def text(self, value: float | str | None) -> str:
        """The value as it is printed."""
        if value is None:
            return "none" if self.form == "epsilon" else "–"
        if self.form == "number" and not isinstance(value, str):
            return number(value)
        return _FORMATS[self.form].format(value)


METRICS: dict[str, Metric] = {}  # by name, in the order in which they are shown


def register(metric: Metric) -> None:
    """Adds a declaration; `of_results` and `of_outputs` do so for a function."""
    if metric.name in METRICS or metric.name in RESERVED:
        raise ValueError(f"metric {metric.name!r} is declared already; give it another name")
    METRICS[metric.name] = metric


def shown(place: Place, *tasks: Task) -> list[Metric]:
    """The metrics that are shown at this place for any of these tasks."""

    def there(metric: Metric, task: Task) -> bool:
        replaced = metric.stands_for is not None and task in METRICS[metric.stands_for].tasks
        return task in metric.tasks and not replaced

    return [m for m in METRICS.values() if getattr(m, place) is not None and any(there(m, task) for task in tasks)]


def values_task(values: Mapping[str, object]) -> Task:
    """The task of a summary or an evaluation, by its values: classification where there is an accuracy."""
    return "regression" if values.get("accuracy") is None else "classification"


def told(text: str, chosen: str) -> str:
    """A metric's text for a run whose Ψ is the spread of `chosen`.

    {metric} becomes that name ("losses" for the loss). {of} becomes " of" and the name, or nothing for the loss.
    """
    loss = chosen == "loss"
    return text.replace("{metric}", "losses" if loss else chosen).replace("{of}", "" if loss else f" of {chosen}")


def number(value: float | None) -> str:
    """Four decimals, or scientific where that would hide the digits."""
    return "–" if value is None else f"{value:.2e}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4f}"
