"""fedfdp show: finished runs side by side."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def show(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")] = False,
    png: Annotated[Path | None, typer.Option(help="Draw curves and per-client accuracy into this file.")] = None,
) -> None:
    """Compare runs: accuracy, fairness, privacy, time."""
    from fedfdp.runs.folder import RunFolder

    runs = [RunFolder.find(folder) for folder in folders]
    summaries = {str(run.path): run.summary() for run in runs}
    if png is not None:
        from fedfdp.report.figures import draw_runs

        draw_runs(runs, png)
    if as_json:
        print(json.dumps(summaries))
        return
    from rich.console import Console
    from rich.table import Table

    from fedfdp.cli.progress import number

    table = Table("run", "method", "data", "accuracy", "worst", "Ψ test", "Ψ train", "ε", "rounds", "seconds")
    for path, s in summaries.items():
        spent = "none" if s["epsilon"] is None else f"{s['epsilon']:.3f}"
        percents = ["–" if s[name] is None else f"{s[name]:.2%}" for name in ("accuracy", "worst_accuracy")]
        psis = [number(s["psi"]), number(s.get("psi_train"))]
        table.add_row(path, s["algorithm"], s["data"], *percents, *psis, spent, str(s["rounds"]), f"{s['seconds']:.0f}")
    Console(width=None if sys.stdout.isatty() else 200).print(table)
