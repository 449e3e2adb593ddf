"""Figures of runs, drawn with matplotlib for papers and for `fedfdp show`. They compute nothing of their own."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedfdp.core.errors import RunError
from fedfdp.core.figures import save_figure
from fedfdp.fairness.metrics import METRICS, Metric, Task, shown, told
from fedfdp.report.contents import document
from fedfdp.report.section import Json
from fedfdp.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes", list[Json]], None]
MOST_MAPS = 12  # runs whose holdings are drawn, each in a file of its own
NAME_LENGTH = 28
TITLE_WIDTH = 42  # characters that fit above a panel


def draw_runs(runs: list[RunFolder], file: Path) -> None:
    """Accuracy, Ψ and ε over the rounds, and how well each client is served, for one run or several."""
    facts = document(runs)
    _draw(_curves(facts["runs"]), facts["runs"], file, "--png")


def draw_figures(facts: Json, folder: Path) -> list[Path]:
    """Every figure of a report as PDF and PNG; returns the PDF files."""
    runs: list[Json] = facts["runs"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}; give another --figures") from None
    wanted: dict[str, tuple[list[Panel], list[Json]]] = {"curves": (_curves(runs), runs)}
    if len(runs) > 1:
        on_front = set(facts["front"])
        wanted["pareto"] = ([_pareto("psi", on_front), _pareto("epsilon", on_front)], runs)
    for run in [run for run in runs if run["clients"]["classes"]][:MOST_MAPS]:
        wanted["holdings" if len(runs) == 1 else f"holdings-{run['number']}"] = ([_holdings], [run])
    for name, (panels, of_runs) in wanted.items():
        for ending in ("pdf", "png"):
            _draw(panels, of_runs, folder / f"{name}.{ending}", "--figures")
    return [folder / f"{name}.pdf" for name in wanted]


def _draw(panels: list[Panel], runs: list[Json], file: Path, setting: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5 * len(panels), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        panel(axis, runs)
        axis.tick_params(which="both", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    if 1 < len(runs) <= 20:
        axes[0][0].legend(fontsize=7, frameon=False)
    save_figure(figure, file, setting=setting)


def _curves(runs: list[Json]) -> list[Panel]:
    """The leading metric of every figure over the rounds that has values, and how well each client is served."""
    leading: dict[str, Metric] = {}
    for metric in shown("curve", _task(runs)):
        if metric.curve is not None:
            leading.setdefault(metric.curve.figure, metric)
    drawn = [m for m in leading.values() if m.line is not None or _values(runs, m.name)]
    return [*map(_curve, drawn), _by_client(_served(runs))]


def _curve(metric: Metric) -> Panel:
    def draw(axis: "Axes", runs: list[Json]) -> None:
        assert metric.curve is not None
        for run in runs:
            axis.plot(
                run["history"]["round"],
                [_shown(metric, value) for value in run["history"][metric.name]],
                label=_label(run),
                marker=".",
                markersize=4,
            )
        title = f"{metric.title}: {metric.about}" if metric.curve.note else _title(metric, metric.curve.figure)
        _name(axis, told(title, _chosen(runs)), "round")
        drawn = _values(runs, metric.name)
        if metric.curve.log and drawn and min(drawn) > 0:
            axis.set_yscale("log")
        if metric.curve.zero:
            axis.set_ylim(bottom=0)

    return draw


def _by_client(metric: Metric) -> Panel:
    def draw(axis: "Axes", runs: list[Json]) -> None:
        for run in runs:
            latest = run["clients"][metric.name][-1] if run["clients"][metric.name] else []
            values = sorted((_shown(metric, v) for v in latest if v is not None), reverse=metric.better == "lower")
            axis.plot(range(1, len(values) + 1), values, marker="o", markersize=4, label=_label(run))
        _name(axis, _title(metric, f"{metric.title} by client"), "client, worst first")
        if metric.form == "percent":
            axis.set_ylim(bottom=max(0, axis.get_ylim()[0] - 5), top=100)

    return draw


def _pareto(across: str, on_front: set[int]) -> Panel:
    def draw(axis: "Axes", runs: list[Json]) -> None:
        served = _served(runs)
        for run in runs:
            x, y = run["result"][across], _shown(served, run["result"][served.name])
            if x is not None and y == y:
                filled = run["number"] in on_front
                points = axis.scatter([x], [y], s=40, label=_label(run))
                points.set_facecolor(points.get_facecolor() if filled else "none")
                points.set_edgecolor(f"C{(run['number'] - 1) % 10}")
                axis.annotate(str(run["number"]), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7)
        _name(axis, _title(served, served.result or served.title), METRICS[across].title)
        if across == "psi" and all((run["result"]["psi"] or 0) > 0 for run in runs):
            axis.set_xscale("log")

    return draw


def _holdings(axis: "Axes", runs: list[Json]) -> None:
    import numpy as np

    clients = runs[0]["clients"]
    counts = np.asarray(clients["classes"])
    axis.imshow(np.sqrt(counts), aspect="auto", cmap="Blues", interpolation="nearest")
    _name(axis, "training records (shade: square root)", "class")
    axis.grid(visible=False)
    if len(counts) <= 30:
        axis.set_yticks(range(len(counts)), [_text(name) for name in clients["names"]])
    if counts.shape[1] <= 20:
        called = clients["class_names"] or range(counts.shape[1])
        axis.set_xticks(range(counts.shape[1]), [_text(str(name)) for name in called])
    if counts.size <= 400:
        for (i, k), count in np.ndenumerate(counts):
            dark = count > 0.4 * counts.max()
            axis.text(k, i, str(count), ha="center", va="center", fontsize=5, color="white" if dark else "black")


def _name(axis: "Axes", title: str, below: str) -> None:
    axis.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=10, loc="left")
    axis.set_xlabel(below, fontsize=9)
    axis.grid(alpha=0.25)


def _title(metric: Metric, text: str) -> str:
    return f"{text}, %" if metric.form == "percent" else text


def _task(runs: list[Json]) -> Task:
    return "classification" if any(run["task"] == "classification" for run in runs) else "regression"


def _served(runs: list[Json]) -> Metric:
    """The main measure of how well a model serves."""
    return shown("line", _task(runs))[0]


def _chosen(runs: list[Json]) -> str:
    """What Ψ is the variance of."""
    return ", ".join(sorted({run["metric"] for run in runs}))


def _values(runs: list[Json], name: str) -> list[float]:
    return [value for run in runs for value in run["history"][name] if value is not None]


def _shown(metric: Metric, value: float | None) -> float:
    return float("nan") if value is None else 100 * value if metric.form == "percent" else value


def _label(run: Json) -> str:
    return _text(f"{run['number']} {run['name']}")


def _text(name: str) -> str:
    """A name as matplotlib shows it: on one line, its $ no formula, what a font cannot show replaced."""
    line = "".join(c if c.isprintable() else " " for c in name)
    cut = line if len(line) <= NAME_LENGTH else line[: NAME_LENGTH - 1] + "…"
    return cut.replace("\\", "\\\\").replace("$", r"\$") if "$" in cut else cut
