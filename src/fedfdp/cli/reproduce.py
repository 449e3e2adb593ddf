"""fedfdp reproduce: the paper's tables and figures, measured again beside what it printed."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.experiments.results import Results
    from fedfdp.experiments.specs import Experiment


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="table1 … table7, figure-lambda, -clip, -sigma, -tradeoff, tune-private, tune-nonprivate"),
    ],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; as often as needed.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these rows, with commas between them.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, …, each with a partition of its own.")] = 1,
    scale: Annotated[
        str, typer.Option(help="smoke (seconds), small (half a minute a run), full (the paper's).")
    ] = "small",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; none: as many as cores.")] = None,
    out: Annotated[Path, typer.Option(help="Where the runs are kept; what is done there is not done again.")] = Path(
        "runs/reproduce"
    ),
    log: Annotated[str | None, typer.Option(help="Also log to tensorboard or mlflow.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw into this file: .png, .pdf or .svg.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print as a page's section.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, and nothing else.")] = False,
) -> None:
    """Run a table or figure of the paper and set what was measured beside what was printed.

    For example: fedfdp reproduce table3 --dataset mnist --seeds 3
    """
    from fedfdp.experiments import render, runner, specs, tuning
    from fedfdp.experiments.scales import find_scale
    from fedfdp.runs.tracking import check_tracking

    find_scale(scale)
    check_tracking(log)
    if name == "table1":
        _table1(scale, as_json=as_json, as_markdown=as_markdown)
        return
    rows = [part.strip() for part in methods.split(",")] if methods else []
    experiment = runner.narrowed(specs.find(name), datasets=dataset or [], methods=rows)
    results = _run(experiment, scale, out, seeds=seeds, jobs=jobs, log=log)
    if figure is not None:
        from fedfdp.experiments.figures import draw

        draw(results, figure)
    if as_json:
        print(json.dumps(results.to_dict(), indent=1))
    elif as_markdown:
        print(render.markdown(results), end="")
    else:
        print(render.text(results, width=None if sys.stdout.isatty() else 200), end="")
        if name.startswith("tune"):
            print(tuning.to_toml(results), end="")


def _run(
    experiment: "Experiment", scale_name: str, out: Path, *, seeds: int, jobs: int | None, log: str | None
) -> "Results":
    from fedfdp.cli.sweep_progress import SweepWatcher
    from fedfdp.experiments.runner import plan_runs, reproduce
    from fedfdp.experiments.scales import find_scale
    from fedfdp.runs.store import Store

    scale, store = find_scale(scale_name), Store(out)
    planned = plan_runs(experiment, scale, experiment.seeds or range(seeds))
    signal.signal(signal.SIGTERM, _interrupt)
    rounds = {store.path(p.config).name: p.config.rounds or 0 for p in planned}
    try:
        with SweepWatcher(rounds) as watcher:
            return reproduce(experiment, scale, store, seeds=seeds, jobs=jobs, log=log, watch=watcher)
    except KeyboardInterrupt:
        print("fedfdp: interrupted; the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None


def _table1(scale: str, *, as_json: bool, as_markdown: bool) -> None:
    from fedfdp.experiments import communication, render
    from fedfdp.experiments.scales import find_scale

    chosen = find_scale(scale)
    rows = communication.communication(chosen)
    if as_json:
        print(json.dumps(communication.to_dict(rows, chosen), indent=1))
        return
    block = communication.block(rows, chosen)
    print(render.block_markdown(block) if as_markdown else render.block_text(block, width=160), end="")


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
