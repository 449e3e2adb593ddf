"""The figure of fedfdp bench: time over the plain step's, and peak memory; a column per model, a bar per peer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfdp.bench.peers import STEP_PEERS
from fedfdp.bench.suite import Row
from fedfdp.core.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.8


def draw(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys((row.what, row.model) for row in rows))
    remembered = any(row.peak_mb is not None for row in rows)
    figure = Figure(figsize=(1.5 + 3.1 * max(len(columns), 2), 6.4 if remembered else 3.8), layout="constrained")
    axes = figure.subplots(1 + remembered, len(columns), squeeze=False, sharey="row")
    for place, (what, model) in enumerate(columns):
        part = [row for row in rows if (row.what, row.model) == (what, model)]
        _bars(axes[0, place], part, lambda row: row.ratio_to_plain, "{:.3g}")
        axes[0, place].set_title(f"{model}, a {what}")
        axes[0, place].axhline(1, color="0.3", linewidth=0.8)
        if remembered:
            _bars(axes[1, place], part, lambda row: row.peak_mb, "{:.0f}")
        axes[-1, place].set_xlabel("batch" if what == "step" else f"clients, {part[0].batch} samples in all")
    axes[0, 0].set_ylabel("time over the plain one's")
    if remembered:
        axes[1, 0].set_ylabel("peak memory, MB")
    shown = [peer for peer in STEP_PEERS if any(row.peer == peer for row in rows)]
    handles = [axes[0, 0].bar([0], [0], color=STEP_PEERS[peer].colour, label=STEP_PEERS[peer].title) for peer in shown]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(shown), frameon=False)
    save_figure(figure, path, dpi=130, format="png", make_folder=True)


def _bars(axes: "Axes", rows: Sequence[Row], value: Callable[[Row], float | None], text: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    sizes = list(dict.fromkeys(row.clients or row.batch for row in rows))
    peers = [peer for peer in STEP_PEERS if any(row.peer == peer for row in rows)]
    width = WIDTH / len(peers)
    for row in rows:
        height = value(row)
        if height is None:
            continue
        height = max(height, 0.1)  # a logarithmic axis has no zero; bars stand on 1, as fast as plain or one MB
        x = sizes.index(row.clients or row.batch) + (peers.index(row.peer) + 0.5) * width - WIDTH / 2
        axes.bar(x, height - 1, width * 0.92, bottom=1, color=STEP_PEERS[row.peer].colour)
        axes.annotate(
            text.format(height), (x, height), (0, 2), textcoords="offset points", ha="center", fontsize=7, rotation=60
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.12)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.grid(axis="y", alpha=0.25)
