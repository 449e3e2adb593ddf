"""Results as tables, for a terminal or a page: measured mean ± spread, the paper's number, the best marked."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfdp.experiments.paper import Printed, printed
from fedfdp.experiments.results import Cell, Claim, Results, Statistic, claims
from fedfdp.experiments.shapes import DATASET_LABELS, Column
from fedfdp.fairness.metrics import METRICS


@dataclass(frozen=True)
class Block:
    """One table: a column of the paper's table, or one data set of a figure."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def blocks(results: Results) -> list[Block]:
    """One table per column, or per data set of a figure."""
    if results.experiment.x_label is not None:
        datasets = dict.fromkeys(column.dataset for column in results.columns)
        return [_figure_block(results, dataset) for dataset in datasets]
    return [_table_block(results, column) for column in results.columns]


def markdown(results: Results) -> str:
    """A section of a page: the tables, how ours compares with the best baseline, and the notes."""
    parts = [f"### {heading(results)}", ""]
    parts += [block_markdown(block) for block in blocks(results)]
    if verdicts := [verdict(claim) for claim in claims(results)]:
        parts += [*(f"- {line}" for line in verdicts), ""]
    parts += [f"- {note}" for note in results.notes()]
    return "\n".join(parts) + "\n"


def text(results: Results, *, width: int | None) -> str:
    """The same for a terminal."""
    lines = [*(verdict(claim) for claim in claims(results)), *results.notes()]
    tables = [block_text(block, width=width) for block in blocks(results)]
    return "\n".join([heading(results), "", *tables, *(f"- {line}" for line in lines)]) + "\n"


def block_markdown(block: Block) -> str:
    rows = [block.headers, ["---"] * len(block.headers), *block.rows]
    return "\n".join([f"**{block.title}**", "", *map(_markdown_row, rows)]) + "\n"


def block_text(block: Block, *, width: int | None) -> str:
    """As text. The best of a column, which is bold on a page, has a star here."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=width, highlight=False)
    table = Table(*block.headers, title=block.title, title_justify="left", title_style="bold")
    for row in block.rows:
        table.add_row(*(f"{cell[2:-2]} *" if cell.startswith("**") else cell for cell in row))
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def heading(results: Results) -> str:
    seeds = ", ".join(map(str, results.seeds))
    plural = "seeds" if len(results.seeds) > 1 else "seed"
    return f"{results.experiment.name}: {results.experiment.title} (scale {results.scale.name}, {plural} {seeds})"


def verdict(claim: Claim) -> str:
    """Says whether Ψ is at most half of the best baseline's, and accuracy no lower."""
    ratio = claim.psi / claim.best_psi if claim.best_psi else float("inf")
    gain = 100 * (claim.accuracy - claim.best_accuracy)
    return (
        f"{claim.column}, ours against the best baseline: Ψ {_small(claim.psi)} is {ratio:.2f} × {claim.best_psi_of}'s "
        f"{_small(claim.best_psi)}; accuracy {100 * claim.accuracy:.2f} is {gain:+.2f} points from "
        f"{claim.best_accuracy_of}'s {100 * claim.best_accuracy:.2f}. Half the Ψ at no lower accuracy: "
        + ("yes" if claim.holds else "no")
    )


def _table_block(results: Results, column: Column) -> Block:
    paper, private = printed(results.experiment.name), results.experiment.private
    first = "ε at target" if column.target else "accuracy %"
    headers = ["method", first, "Ψ test", "Ψ train", "worst client %"]
    headers += ["Ψ local"] if private else []
    headers += [f"paper: {'ε' if column.target else 'acc. %'}", "paper: Ψ"] if paper else []
    headers += ["η", "rounds"] + (["ε"] if private and not column.target else []) + ["config"]
    if column.target:
        headers.remove("Ψ train")
    compared = any(results.worse_off(cell) for cell in results.column(column))
    headers += ["worse off than alone"] if compared else []
    rows = []
    for cell in results.column(column):
        value = _marked(results, cell, "epsilon" if column.target else "accuracy")
        row = [cell.row.label, value, _marked(results, cell, "psi")]
        row += [] if column.target else [_marked(results, cell, "psi_train")]
        row.append(_marked(results, cell, "worst_accuracy"))
        row += [statistic(cell.of("psi_local"), "psi")] if private else []
        row += _paper(paper.get((cell.row.key, column.label))) if paper else []
        row += [_settings(cell), _rounds(cell)]
        row += [_budget(cell)] if private and not column.target else []
        row.append(cell.runs[0].config)
        rows.append((*row, *([_few(results.worse_off(cell))] if compared else [])))
    return Block(column.label, tuple(headers), tuple(rows))


def _settings(cell: Cell) -> str:
    """η, and the method's own setting where it was tuned too."""
    run = cell.runs[0]
    return ", ".join([f"{run.lr:.3g}", *(f"{name} = {value:g}" for name, value in run.own.items())])


def _few(found: Statistic | None) -> str:
    """A mean of counts with its spread."""
    if found is None:
        return "–"
    return f"{found.mean:.1f}" if found.spread is None else f"{found.mean:.1f} ± {found.spread:.1f}"


def _figure_block(results: Results, dataset: str) -> Block:
    """One row per curve and x, in the order of the curves."""
    experiment = results.experiment
    private, target = experiment.private, experiment.targets
    headers = ["curve", experiment.x_label or "x", *(["ε at target"] if target else ["accuracy %"]), "Ψ test"]
    headers += ([] if target else ["Ψ train"]) + ["worst client %", "η", "rounds"]
    spent = private and not target and experiment.x_label != "ε"
    headers += (["ε"] if spent else []) + ["config"]
    rows = []
    for row in experiment.rows:
        for cell in results.cells:
            if cell.row != row or cell.column.dataset != dataset:
                continue
            line = [row.label, f"{cell.column.x:g}", statistic(cell.of("epsilon"), "epsilon")] if target else []
            line = line or [row.label, f"{cell.column.x:g}", statistic(cell.of("accuracy"), "accuracy")]
            line += [statistic(cell.of(m), m) for m in (["psi"] if target else ["psi", "psi_train"])]
            line += [statistic(cell.of("worst_accuracy"), "worst_accuracy"), f"{cell.runs[0].lr:.3g}", _rounds(cell)]
            line += [_budget(cell)] if spent else []
            rows.append((*line, cell.runs[0].config))
    return Block(DATASET_LABELS.get(dataset, dataset), tuple(headers), tuple(rows))


def statistic(found: Statistic | None, measure: str) -> str:
    """Mean ± spread with the digits that suit the measure; a dash if a run has no value."""
    if found is None:
        return "–"
    if METRICS[measure].form == "percent":
        spread = "" if found.spread is None else f" ± {100 * found.spread:.2f}"
        return f"{100 * found.mean:.2f}{spread}"
    if measure == "epsilon":
        return f"{found.mean:.2f}" + ("" if found.spread is None else f" ± {found.spread:.2f}")
    return _small(found.mean) + ("" if found.spread is None else f" ± {_small(found.spread)}")


def _marked(results: Results, cell: Cell, measure: str) -> str:
    found = cell.of(measure)
    choose = max if METRICS[measure].better == "higher" else min
    best = results.best(cell.column, measure, choose)
    shown = statistic(found, measure)
    return f"**{shown}**" if found is not None and found.mean == best else shown


def _paper(quoted: Printed | None) -> tuple[str, str]:
    if quoted is None:
        return "–", "–"
    value = f"{quoted.value:.2f}" + ("" if quoted.value_spread is None else f" ± {quoted.value_spread:.2f}")
    return value, _small(quoted.psi) + ("" if quoted.psi_spread is None else f" ± {_small(quoted.psi_spread)}")


def _rounds(cell: Cell) -> str:
    rounds = sorted({run.rounds for run in cell.runs})
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"


def _budget(cell: Cell) -> str:
    spent = [run.epsilon for run in cell.runs if run.epsilon is not None]
    return f"{max(spent):.3f}" if spent else "–"


def _small(value: float) -> str:
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
