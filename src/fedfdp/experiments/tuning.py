"""From a tuning sweep to `tuned.toml`: each method's best η. Reads results of the tuning seed only."""

from fedfdp.experiments.results import Cell, Results


def chosen(results: Results) -> dict[str, dict[str, Cell]]:
    """By data set and method, the cell with the highest accuracy; among equals, the one with the lower Ψ."""
    best: dict[str, dict[str, Cell]] = {}
    for cell in results.cells:
        methods = best.setdefault(cell.column.dataset, {})
        if cell.row.key not in methods or _merit(cell) > _merit(methods[cell.row.key]):
            methods[cell.row.key] = cell
    return best


def to_toml(results: Results) -> str:
    """The sections of `tuned.toml` for what was swept, with what each η reached."""
    kind = "private" if results.experiment.private else "nonprivate"
    kind += "-laptop" if results.scale.name == "laptop" else ""
    lines = []
    for dataset, methods in chosen(results).items():
        grid = ", ".join(f"{c.x:g}" for c in results.columns if c.dataset == dataset)
        seeds = ", ".join(map(str, results.seeds))
        lines.append(
            f"[{kind}.{dataset}]  # scale {results.scale.name}, seed {seeds}, best accuracy of η in {{{grid}}}"
        )
        for key, cell in methods.items():
            accuracy, psi = cell.of("accuracy"), cell.of("psi")
            reached = f"  # {accuracy.mean:.2%}, Ψ {psi.mean:.1e}" if accuracy and psi else ""
            lines.append(f"{key} = {cell.column.x}{reached}")
        lines.append("")
    return "\n".join(lines)


def _merit(cell: Cell) -> tuple[float, float]:
    accuracy, psi = cell.of("accuracy"), cell.of("psi")
    return (accuracy.mean if accuracy else -1.0, -psi.mean if psi else float("-inf"))
