"""Who holds which classes: as a table in a terminal, as a picture, and as plain numbers.

For simulations only: it shows what a real holder would keep to itself. It changes nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedfdp.core.figures import save_figure
from fedfdp.data.federation import Federation

if TYPE_CHECKING:
    from rich.table import Table

ROWS = 40  # of more clients than this, only some are shown, from the largest to the smallest
_SHADES = "·░▒▓█"
_COLOURS = (
    "#4e9bd8",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#b07aa1",
    "#c49a6c",
    "#ff9da7",
    "#9c9c9c",
    "#c9b52f",
    "#3fbfb0",
)


def numbers(federation: Federation) -> dict[str, object]:
    """Sizes and class counts of every client, ready for JSON."""
    counts = _held(federation)
    return {
        "name": federation.name,
        "records": int(counts.sum()),
        "classes": federation.classes,
        "fingerprint": federation.fingerprint(),
        "clients": [
            {"name": client.name, "train": len(client.train), "test": len(client.test), "counts": row.tolist()}
            for client, row in zip(federation.clients, counts, strict=True)
        ],
    }


def spread(federation: Federation) -> str:
    """How unequal the clients are: one line about sizes, one about classes."""
    counts = _held(federation)
    sizes, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
    return (
        f"records per client: least {sizes.min():,}, median {np.median(sizes):,.0f}, most {sizes.max():,}\n"
        f"classes per client: least {kinds.min()}, median {np.median(kinds):g}, most {kinds.max()}"
    )


def table(federation: Federation) -> "Table":
    """One row per client, one shaded cell per class; of many clients only some, spread evenly by size."""
    from rich.table import Table
    from rich.text import Text

    counts = _held(federation)
    sizes = counts.sum(axis=1)
    shown = np.arange(len(counts))
    if len(counts) > ROWS:
        shown = np.argsort(-sizes, kind="stable")[np.linspace(0, len(counts) - 1, ROWS // 2).round().astype(int)]
    grid = Table(box=None, padding=(0, 1), pad_edge=False)
    grid.add_column("client")
    header = Text()
    for k in range(counts.shape[1]):
        header.append(f"{k:<3}", style=_colour(k))
    grid.add_column(header, no_wrap=True)
    for title in ("train", "test"):
        grid.add_column(title, justify="right")
    grid.add_column("all", no_wrap=True)
    for i in shown:
        client, cells = federation.clients[int(i)], Text()
        for k, count in enumerate(counts[i]):
            cells.append(_shade(count, counts.max()) * 2 + " ", style=_colour(k) if count else "dim")
        bar = "▇" * max(1, round(14 * sizes[i] / sizes.max()))
        grid.add_row(client.name, cells, f"{len(client.train):,}", f"{len(client.test):,}", f"{bar} {sizes[i]:,}")
    return grid


def picture(federation: Federation, path: Path, title: str) -> None:
    """A stacked bar per client; with more than 60, filled areas, grouped by the class that a client has most of."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    counts = _held(federation)
    kinds = counts.shape[1]
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    if len(counts) <= 60:
        places, floor = np.arange(len(counts)), np.zeros(len(counts))
        for k in range(kinds):
            axes.bar(places, counts[:, k], bottom=floor, width=0.82, color=_colour(k))
            floor = floor + counts[:, k]
        axes.set(xlabel="client", xlim=(-0.7, len(counts) - 0.3))
        if len(counts) <= 25:
            names = [client.name.removeprefix("client-") for client in federation.clients]
            axes.set_xticks(places, names, rotation=45 if max(map(len, names)) > 4 else 0)
    else:
        most = counts.argmax(axis=1)
        order = np.lexsort((-counts.sum(axis=1), most))
        for k in np.unique(most):
            group = np.flatnonzero(most[order] == k)
            edges, floor = np.append(group, group[-1] + 1), np.zeros(len(group) + 1)
            # A group's own class goes to the bottom; otherwise thousands of thin bars would blur into one colour.
            for c in sorted(range(kinds), key=lambda c: c != k):
                top = floor + np.append(counts[order[group], c], 0)
                axes.fill_between(edges, floor, top, step="post", color=_colour(c), linewidth=0)
                floor = top
        axes.set(xlabel="clients, grouped by the class they have most of", xlim=(0, len(counts)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(title=title, ylabel="records", ylim=(0, 1.05 * counts.sum(axis=1).max()))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    handles = [Patch(color=_colour(k), label=str(k)) for k in reversed(range(kinds))]
    axes.legend(handles=handles, title="class", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save_figure(figure, path)


def _held(federation: Federation) -> NDArray[np.int64]:
    return federation.class_counts("train") + federation.class_counts("test")


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _shade(count: int, most: int) -> str:
    # The square root makes few records look different from none.
    return _SHADES[0] if count == 0 else _SHADES[1 + min(3, int(4 * np.sqrt(count / most)))]
