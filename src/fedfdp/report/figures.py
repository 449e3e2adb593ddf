"""Figures of runs, drawn with matplotlib for papers and for `fedfdp show`. They compute nothing of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedfdp.core.errors import RunError
from fedfdp.report.contents import document
from fedfdp.runs.folder import RunFolder

Run = dict[str, Any]
Panel = Callable[[Any, list[Run]], None]
MOST_MAPS = 12  # runs whose holdings are drawn, each in a file of its own
NAME_LENGTH = 28


def draw_runs(runs: list[RunFolder], file: Path) -> None:
    """Accuracy, Ψ and ε over the rounds, and how well each client is served, for one run or several."""
    facts = document(runs)
    _draw(_curves(facts["runs"]), facts["runs"], file)


def draw_figures(facts: dict[str, Any], folder: Path) -> list[Path]:
    """Every figure of a report as PDF and PNG; returns the PDF files."""
    runs: list[Run] = facts["runs"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}; give another --figures") from None
    wanted: dict[str, tuple[list[Panel], list[Run]]] = {"curves": (_curves(runs), runs)}
    if len(runs) > 1:
        on_front = set(facts["front"])
        wanted["pareto"] = ([_pareto("psi", on_front), _pareto("epsilon", on_front)], runs)
    for run in [run for run in runs if run["clients"]["classes"]][:MOST_MAPS]:
        wanted["holdings" if len(runs) == 1 else f"holdings-{run['number']}"] = ([_holdings], [run])
    for name, (panels, shown) in wanted.items():
        for ending in ("pdf", "png"):
            _draw(panels, shown, folder / f"{name}.{ending}")
    return [folder / f"{name}.pdf" for name in wanted]


def _draw(panels: list[Panel], runs: list[Run], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(3.5 * len(panels), 3.4), layout="constrained", squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        panel(axis, runs)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    if 1 < len(runs) <= 20:
        axes[0][0].legend(fontsize=7, frameon=False)
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be written: {error}; give a .png, .svg or .pdf file") from None
    finally:
        plt.close(figure)


def _curves(runs: list[Run]) -> list[Panel]:
    served, title = ("accuracy", "test accuracy, %") if _classed(runs) else ("loss", "test loss")
    panels = [
        _curve(served, title),
        _curve("psi", f"Ψ: variance of the clients' {_measured(runs)}"),
        _by_client(served, f"{title[5:]} by client" if served == "loss" else "accuracy by client, %"),
    ]
    if any(value is not None for run in runs for value in run["history"]["epsilon"]):
        panels.append(_curve("epsilon", "ε spent by each client"))
    return panels


def _measured(runs: list[Run]) -> str:
    """What Ψ is the variance of."""
    metrics = {run.get("metric", "loss") for run in runs}
    return "losses" if metrics == {"loss"} else ", ".join(sorted(metrics))


def _curve(measure: str, title: str) -> Panel:
    def draw(axis: Any, runs: list[Run]) -> None:
        for run in runs:
            values = [_shown(measure, value) for value in run["history"][measure]]
            axis.plot(run["history"]["round"], values, label=_label(run), marker=".", markersize=4)
        _name(axis, title, "round")
        drawn = [v for run in runs for v in run["history"][measure] if v is not None]
        if measure == "psi" and drawn and min(drawn) > 0:
            axis.set_yscale("log")
        if measure == "epsilon":
            axis.set_ylim(bottom=0)

    return draw


def _by_client(measure: str, title: str) -> Panel:
    def draw(axis: Any, runs: list[Run]) -> None:
        for run in runs:
            latest = run["clients"][measure][-1] if run["clients"][measure] else []
            values = sorted((_shown(measure, v) for v in latest if v is not None), reverse=measure == "loss")
            axis.plot(range(1, len(values) + 1), values, marker="o", markersize=4, label=_label(run))
        _name(axis, title, "client, worst first")
        if measure == "accuracy":
            axis.set_ylim(bottom=max(0, axis.get_ylim()[0] - 5), top=100)

    return draw


def _pareto(across: str, on_front: set[int]) -> Panel:
    def draw(axis: Any, runs: list[Run]) -> None:
        served, title = ("accuracy", "test accuracy, %") if _classed(runs) else ("loss", "test loss")
        for run in runs:
            x, y = run["result"][across], _shown(served, run["result"][served])
            if x is not None and y == y:
                filled = run["number"] in on_front
                points = axis.scatter([x], [y], s=40, label=_label(run))
                points.set_facecolor(points.get_facecolor() if filled else "none")
                points.set_edgecolor(f"C{(run['number'] - 1) % 10}")
                axis.annotate(str(run["number"]), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7)
        _name(axis, title, "Ψ test" if across == "psi" else "ε")
        if across == "psi" and all((run["result"]["psi"] or 0) > 0 for run in runs):
            axis.set_xscale("log")

    return draw


def _holdings(axis: Any, runs: list[Run]) -> None:
    import numpy as np

    clients = runs[0]["clients"]
    counts = np.asarray(clients["classes"])
    axis.imshow(np.sqrt(counts), aspect="auto", cmap="Blues", interpolation="nearest")
    _name(axis, "training records (shade: square root)", "class")
    axis.grid(visible=False)
    if len(counts) <= 30:
        axis.set_yticks(range(len(counts)), [_text(name) for name in clients["names"]])
    if counts.shape[1] <= 20:
        axis.set_xticks(range(counts.shape[1]))
    if counts.size <= 400:
        for (i, k), count in np.ndenumerate(counts):
            dark = count > 0.4 * counts.max()
            axis.text(k, i, str(count), ha="center", va="center", fontsize=5, color="white" if dark else "black")


def _name(axis: Any, title: str, below: str) -> None:
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(below, fontsize=9)
    axis.grid(alpha=0.25)


def _classed(runs: list[Run]) -> bool:
    return any(value is not None for run in runs for value in run["history"]["accuracy"])


def _shown(measure: str, value: float | None) -> float:
    return float("nan") if value is None else 100 * value if "accuracy" in measure else value


def _label(run: Run) -> str:
    return _text(f"{run['number']} {run['name']}")


def _text(name: str) -> str:
    """A name as matplotlib shows it: on one line, its $ no formula, what a font cannot show replaced."""
    line = "".join(c if c.isprintable() else " " for c in name)
    cut = line if len(line) <= NAME_LENGTH else line[: NAME_LENGTH - 1] + "…"
    return cut.replace("\\", "\\\\").replace("$", r"\$") if "$" in cut else cut
