"""Draws an experiment's results with matplotlib, in any format that it writes. Computes nothing."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from fedfdp.core.figures import save_figure
from fedfdp.experiments.render import heading
from fedfdp.experiments.results import Cell, Results
from fedfdp.experiments.shapes import DATASET_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(results: Results, file: Path) -> None:
    """A figure as curves over x, targets as Ψ against ε, a table as Ψ against accuracy."""
    from matplotlib.figure import Figure

    panels = _panels(results)
    curves = results.experiment.x_label is not None and not results.experiment.targets
    across = len(panels) // 2 if curves else min(3, len(panels))  # curves: Ψ below the accuracy
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(max(6.0, 4.6 * across), 3.8 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for left in axes[len(panels) :]:
        left.remove()
    for axis, (title, measures, cells) in zip(axes, panels, strict=False):
        for number, row in enumerate(results.experiment.rows):
            mine = [cell for cell in cells if cell.row == row]
            _line(axis, number, row.label, mine, *measures, joined=results.experiment.x_label is not None)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel(_NAMES.get(measures[0], results.experiment.x_label or ""), fontsize=9)
        axis.set_ylabel(_NAMES[measures[1]], fontsize=9)
        if measures[1] == "psi":
            axis.set_yscale("log")
        if measures[0] == "x" and results.experiment.log_x:
            axis.set_xscale("log")
            values = sorted({cell.column.x for cell in cells})
            axis.set_xticks(values, [f"{x:g}" for x in values])
            axis.set_xticks([], minor=True)
        axis.tick_params(which="both", labelsize=8)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    shown = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if shown:  # nothing is drawn where no row reached its target
        axes[len(panels) - 1].legend(shown.values(), shown.keys(), fontsize=7, frameon=False)
    figure.suptitle(heading(results), fontsize=10, x=0.01, ha="left")
    save_figure(figure, file, setting="--save")


_NAMES = {"accuracy": "test accuracy, %", "psi": "Ψ (test)", "epsilon": "ε spent"}
_MARKERS = "osD^vP*X<"  # nine, beside ten colours: no two of ninety rows look alike


def _panels(results: Results) -> list[tuple[str, tuple[str, str], list[Cell]]]:
    """For each panel its title, the measures along x and y, and its cells."""
    if results.experiment.x_label is None:
        across = "epsilon" if results.experiment.targets else "accuracy"
        return [(c.label, (across, "psi"), list(results.column(c))) for c in results.columns]
    by_dataset: dict[str, list[Cell]] = {}
    for cell in results.cells:
        by_dataset.setdefault(DATASET_LABELS.get(cell.column.dataset, cell.column.dataset), []).append(cell)
    if results.experiment.targets:
        return [(f"{name}: Ψ at the target", ("epsilon", "psi"), cells) for name, cells in by_dataset.items()]
    kinds = (("accuracy", "accuracy"), ("Ψ", "psi"))
    return [(f"{name}: {what}", ("x", up), cells) for what, up in kinds for name, cells in by_dataset.items()]


def _line(axis: "Axes", number: int, label: str, cells: list[Cell], across: str, up: str, *, joined: bool) -> None:
    """The row of that number; it looks alike in all panels, also where others are missing."""
    points = [(_value(cell, across), _value(cell, up)) for cell in cells]
    known = [(x, y) for x, y in points if x is not None and y is not None]
    if not known:
        return
    drawn = [cell for cell, point in zip(cells, points, strict=True) if None not in point]
    wide, high = ([_spread(cell, measure) for cell in drawn] for measure in (across, up))
    xs, ys = zip(*known, strict=True)
    marker, color, plain = _MARKERS[number % len(_MARKERS)], f"C{number}", label.replace("`", "")
    axis.errorbar(
        xs, ys, high, wide, label=plain, marker=marker, color=color, markersize=5, capsize=2,
        linestyle="-" if joined else "none",
    )  # fmt: skip


def _value(cell: Cell, measure: str) -> float | None:
    if measure == "x":
        return cell.column.x
    found = cell.of(measure)
    return None if found is None else 100 * found.mean if measure == "accuracy" else found.mean


def _spread(cell: Cell, measure: str) -> float:
    found = None if measure == "x" else cell.of(measure)
    if found is None or found.spread is None:
        return 0.0
    return 100 * found.spread if measure == "accuracy" else min(found.spread, 0.9 * found.mean)  # Ψ's axis is log
