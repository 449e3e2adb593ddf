"""From a tuning sweep to `tuned.toml`: each method's best settings. Reads results of the tuning seed only."""

from collections.abc import Callable
from dataclasses import replace

from fedfdp.experiments.results import Cell, Results
from fedfdp.experiments.scales import NATURAL
from fedfdp.experiments.shapes import Experiment, Row


def in_turn(experiment: Experiment, run: Callable[[Experiment], Results]) -> Results:
    """First η, at the middle one of the values of each method's own setting; then its other values, at the best η.

    That is about half of what the whole grid would take. Where methods have one row each, all of it is run.
    """
    rows: dict[str, list[Row]] = {}
    for row in experiment.rows:
        rows.setdefault(row.method, []).append(row)
    found = run(replace(experiment, rows=tuple(tried[len(tried) // 2] for tried in rows.values())))
    cells, best = list(found.cells), [cell for methods in chosen(found).values() for cell in methods.values()]
    for column in experiment.columns:
        here = [cell.row for cell in best if cell.column == column]
        if others := tuple(row for one in here for row in rows[one.method] if row != one):
            cells += run(replace(experiment, rows=others, columns=(column,))).cells
    return replace(found, experiment=experiment, cells=tuple(cells))


def chosen(results: Results) -> dict[str, dict[str, Cell]]:
    """By data set and method, the cell with the lowest Ψ among those whose accuracy is near the method's best.

    How near is the experiment's `near_best`: 0 means the highest accuracy, and Ψ decides among equals only.
    """
    tried: dict[str, dict[str, list[Cell]]] = {}
    for cell in results.cells:
        tried.setdefault(cell.column.dataset, {}).setdefault(cell.row.method, []).append(cell)
    near = results.experiment.near_best
    return {
        dataset: {method: _fairest(cells, near) for method, cells in methods.items()}
        for dataset, methods in tried.items()
    }


def _fairest(cells: list[Cell], near: float) -> Cell:
    enough = max(map(_accuracy, cells)) - near
    return min((cell for cell in cells if _accuracy(cell) >= enough), key=_psi)


def to_toml(results: Results) -> str:
    """The sections of `tuned.toml` for what was swept, with what each choice reached."""
    kind = "private" if results.experiment.private else "nonprivate"
    lines = []
    for dataset, methods in chosen(results).items():
        scale = results.scale.name
        section = f"{kind}-{scale}" if scale in ("laptop", "brief") and dataset not in NATURAL else kind
        grid = ", ".join(f"{x:g}" for x in dict.fromkeys(c.x for c in results.columns if c.dataset == dataset))
        seeds, near = ", ".join(map(str, results.seeds)), results.experiment.near_best
        rule = f"lowest Ψ within {100 * near:g} points of the best accuracy, η" if near else "best accuracy of η"
        lines.append(f"[{section}.{dataset}]  # scale {scale}, seed {seeds}, {rule} in {{{grid}}}")
        for key, cell in methods.items():
            accuracy, psi = cell.of("accuracy"), cell.of("psi")
            reached = f"  # {accuracy.mean:.2%}, Ψ {psi.mean:.1e}" if accuracy and psi else ""
            found = {name.partition(".")[2]: value for name, value in cell.row.at(cell.column.x).items()}
            inline = ", ".join(f"{name} = {value}" for name, value in found.items())
            lines.append(f"{key} = {cell.column.x if len(found) == 1 else f'{{ {inline} }}'}{reached}")
        lines.append("")
    return "\n".join(lines)


def _accuracy(cell: Cell) -> float:
    found = cell.of("accuracy")
    return found.mean if found else -1.0


def _psi(cell: Cell) -> float:
    found = cell.of("psi")
    return found.mean if found else float("inf")
