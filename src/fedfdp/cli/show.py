"""fedfdp show: runs side by side. Reads their folders, and changes nothing."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedfdp.runs.folder import RunFolder


def show(
    places: Annotated[
        list[Path], typer.Argument(help="Runs, or folders with runs below them.", metavar="RUN|SWEEP...")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")] = False,
    png: Annotated[Path | None, typer.Option(help="Draw curves and per-client accuracy into this file.")] = None,
) -> None:
    """Compare runs: accuracy, fairness, privacy, time."""
    from fedfdp.runs.store import find_runs

    runs = find_runs(places)
    summaries = {str(run.path): _summary(run) for run in runs}
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
        table.add_row(
            path if summary.get("finished", True) else f"{path} (not finished)",
            summary["algorithm"],
            summary["data"],
            *values,
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _summary(run: "RunFolder") -> dict[str, Any]:
    """What a run came to; of one that is not finished, its last evaluation so far."""
    if run.finished:
        return run.summary()
    config, last = run.config(), (run.metrics() or [{}])[-1]
    method, data = config.get("algorithm", {}).get("name"), config.get("data", {}).get("source")
    return {"finished": False, "algorithm": method or "–", "data": Path(data).name if data else "–", **last}
