"""Rows as tables, for the terminal and for Markdown: one of time and one of memory for steps, and for rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfdp.bench.named.rows import NamedRow
from fedfdp.bench.peers import STEP_PEERS
from fedfdp.bench.suite import Row
from fedfdp.core.errors import SettingError

MARKER = "fedfdp bench"
NONE = "–"


@dataclass(frozen=True)
class Grid:
    """A table of texts."""

    title: str
    head: list[str]
    lines: list[list[str]]


def grids(rows: Sequence[Row]) -> list[Grid]:
    """The tables of these rows; those that would be empty are left out."""
    found = []
    for what in ("step", "round"):
        part = [row for row in rows if row.what == what]
        if not part:
            continue
        found.append(_grid(f"Time of a {what} over the plain one's: median (quartiles)", part, _ratio))
        if any(row.peak_mb is not None for row in part):
            found.append(_grid(f"Peak memory of a {what}, MB above what was resident before it", part, _peak))
    return found


def notes(rows: Sequence[Row]) -> list[str]:
    """Why a place in the tables is empty."""
    texts = []
    for row in rows:
        if row.absent:
            size = f"batch {row.batch}" if row.clients is None else f"{row.clients} clients"
            texts.append(f"{STEP_PEERS[row.peer].title} not measured on {row.model}, {size}: it {row.absent}")
    return texts


def markdown(rows: Sequence[Row], caption: str) -> str:
    parts = [caption]
    for grid in grids(rows):
        parts.append(f"**{grid.title}**\n\n{markdown_table(grid.head, grid.lines)}")
    parts += [f"{text}." for text in notes(rows)]
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def named_table(rows: Sequence[NamedRow]) -> tuple[list[str], list[list[str]]]:
    """The table of named models: its head, and a line for each."""
    head = ["model", "of", "weights trained", "path", "error", "of single precision", "time", "Opacus"]
    lines = [_named(row) for row in rows]
    if len({row.batch for row in rows}) > 1:
        head.insert(3, "records")
        for line, row in zip(lines, rows, strict=True):
            line.insert(3, str(row.batch))
    return head, lines


def _named(row: NamedRow) -> list[str]:
    first = [row.name, row.package, f"{row.trained:,}"]
    if row.failed:
        return [*first, row.failed, *[NONE] * 4]
    errors = [NONE if value is None else f"{value:.0e}" for value in (row.error, row.rounding)]
    times = [NONE if value is None else f"{value:.2f}" for value in (row.ratio, row.opacus)]
    if row.opacus is None and row.opacus_fails:
        times[1] = "fails"
    return [*first, row.path, *errors, *times]


def write_markdown(text: str, path: Path, *, marker: str = MARKER) -> None:
    """Into a new file, or into a page between its two marker lines; the rest of the page stays as it is."""
    first, last = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    try:
        page = path.read_text(encoding="utf-8") if path.exists() else f"{first}\n{last}\n"
        before, begin, rest = page.partition(first)
        _, end, after = rest.partition(last)
        if not begin or not end:
            raise SettingError("markdown", str(path), f"has no lines {first} and {last} to write between", "add them")
        path.write_text(f"{before}{first}\n\n{text}\n{last}{after}", encoding="utf-8")
    except OSError as error:
        raise SettingError("markdown", str(path), f"cannot be written ({error.strerror})", "choose another") from error


def _grid(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Grid:
    peers = [peer for peer in STEP_PEERS if any(row.peer == peer for row in rows)]
    by_case: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault((row.model, row.clients or row.batch), {})[row.peer] = row
    size = "batch" if rows[0].clients is None else "clients"
    lines = [
        [model, str(count), *[cell(found[peer]) if peer in found else NONE for peer in peers]]
        for (model, count), found in by_case.items()
    ]
    return Grid(title, ["model", size, *[STEP_PEERS[peer].title for peer in peers]], lines)


def _ratio(row: Row) -> str:
    if row.ratio_to_plain is None or row.seconds is None:
        return NONE
    if row.peer == "plain":
        return f"{1000 * row.seconds:.3g} ms"
    return f"{row.ratio_to_plain:.2f} ({row.ratio_low:.2f}–{row.ratio_high:.2f})"


def _peak(row: Row) -> str:
    return NONE if row.peak_mb is None else f"{row.peak_mb:,.0f}"
