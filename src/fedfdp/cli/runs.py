"""fedfdp runs: what is kept on disk: list, show, compare, export, prune."""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.runs.folder import RunFolder

app = typer.Typer(help="Runs on disk: list, show, compare, export, prune.", no_args_is_help=True)

Places = Annotated[list[Path] | None, typer.Argument(help="Runs, or folders with runs below them; none: runs/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON, and nothing else.")]


@app.command("list")
def list_(places: Places = None, as_json: AsJson = False) -> None:
    """Every run: its method, its data, how far it is, and what it reached."""
    runs = _runs(places)
    measured = _measured(runs)
    rows = [{"run": str(run.path), **_overview(run, measured)} for run in runs]
    if as_json:
        print(json.dumps(rows))
        return
    _print_table(["run", "state", "method", "data", *measured], rows)


@app.command()
def show(run: Annotated[Path, typer.Argument(help="One run's folder.")], as_json: AsJson = False) -> None:
    """One run: its settings and every measure at its last evaluation."""
    from fedfdp.runs.folder import RunFolder
    from fedfdp.runs.tracking import flat

    folder = RunFolder.find(run)
    found = {"config": folder.config(), "result": _last(folder)}
    if as_json:
        print(json.dumps({"state": _state(folder), **found}))
        return
    print(f"state = {_state(folder)}")
    for name, value in flat(found).items():
        if not isinstance(value, list):
            print(f"{name} = {value}")


@app.command()
def compare(places: Places = None, as_json: AsJson = False) -> None:
    """Runs side by side, and the settings in which they differ."""
    from fedfdp.runs.tracking import flat

    runs = _runs(places)
    settings = [flat(run.config()) for run in runs]
    names = dict.fromkeys(name for config in settings for name in config)
    differ = [n for n in names if n != "name" and len({json.dumps(c.get(n)) for c in settings}) > 1]
    measured = _measured(runs)
    rows = [
        {"run": run.path.name, **{name: config.get(name) for name in differ}, **_overview(run, measured)}
        for run, config in zip(runs, settings, strict=True)
    ]
    if as_json:
        print(json.dumps(rows))
        return
    common = [n for n in differ if all(n in config for config in settings)]  # not what only one method has
    _print_table(["run", *common, *measured], rows)


@app.command()
def export(
    places: Places = None,
    form: Annotated[str, typer.Option("--format", help="csv or parquet.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="The file; none: runs.csv or runs.parquet.")] = None,
) -> None:
    """Every evaluation of every run as one table, with the run's settings beside it."""
    from fedfdp.runs.tables import write_table

    runs, file = _runs(places), out or Path(f"runs.{form}")
    rows = write_table(runs, file, form=form)
    print(f"{rows} evaluations of {len(runs)} runs in {file}")


@app.command()
def prune(
    places: Places = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Checkpoints of finished runs.")] = False,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Whole folders of runs that never ended.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only say what would be deleted.")] = False,
) -> None:
    """Delete what is no longer needed. Ledgers of finished runs are always kept."""
    from fedfdp.core.errors import SettingError
    from fedfdp.runs.folder import CHECKPOINT

    if not checkpoints and not unfinished:
        raise SettingError("prune", None, "nothing chosen to delete", "give --checkpoints or --unfinished")
    doomed = []
    for run in _runs(places):
        if run.finished and checkpoints and (run.path / CHECKPOINT).exists():
            doomed.append(run.path / CHECKPOINT)
        elif not run.finished and unfinished:
            doomed.append(run.path)
    for path in doomed:
        print(f"{'deleted' if yes else 'would delete'} {path}")
        if yes and path.is_dir():
            shutil.rmtree(path)
        elif yes:
            path.unlink()
    if doomed and not yes:
        print("nothing was deleted; add --yes")


def _runs(places: list[Path] | None) -> list["RunFolder"]:
    from fedfdp.runs.store import find_runs

    return find_runs(places or [Path("runs")])


def _state(run: "RunFolder") -> str:
    if run.finished:
        return "done"
    metrics = run.metrics()
    return f"round {metrics[-1]['round']}" if metrics else "begun"


def _last(run: "RunFolder") -> dict[str, object]:
    """What a run came to: its summary, or its last evaluation so far."""
    return run.summary() if run.finished else (run.metrics() or [{}])[-1]


def _measured(runs: list["RunFolder"]) -> list[str]:
    """The names of the metrics that a table of these runs shows."""
    from fedfdp.fairness.metrics import shown, values_task

    tasks = {values_task(last) for run in runs if (last := _last(run))}
    return [metric.name for metric in shown("column", *tasks or {"classification"})]


def _overview(run: "RunFolder", measured: list[str]) -> dict[str, object]:
    config, last = run.config(), _last(run)
    return {
        "state": _state(run),
        "method": config.get("algorithm", {}).get("name"),
        "data": config.get("data", {}).get("source"),
        **{name: last.get(name) for name in measured},
    }


def _print_table(columns: list[str], rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in columns))
    Console(width=None if sys.stdout.isatty() else 220).print(table)


def _cell(name: str, value: object) -> str:
    from fedfdp.fairness.metrics import METRICS

    if value is None:
        return "–"
    if name in METRICS and isinstance(value, float):
        return METRICS[name].text(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
