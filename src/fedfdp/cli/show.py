"""fedfdp show: finished runs side by side. Reads their folders, and changes nothing."""

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

    from fedfdp.fairness.metrics import shown, values_task

    columns = shown("column", *{values_task(summary) for summary in summaries.values()})
    table = Table("run", "method", "data", *(metric.column or "" for metric in columns))
    for path, summary in summaries.items():
        values = [metric.text(summary.get(metric.name)) for metric in columns]
        table.add_row(path, summary["algorithm"], summary["data"], *values)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
