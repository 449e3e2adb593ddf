"""fedfdp reproduce: the paper's tables and figures, measured again, beside the printed numbers."""

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.experiments.results import Results
    from fedfdp.experiments.shapes import Experiment


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1 … table7, figure-lambda, -clip, -sigma, -tradeoff, -epsilon, adaptive, pretrained, fair, "
            "fair-plain, tune-private, tune-nonprivate, tune-fair"
        ),
    ],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these rows, separated by commas.")] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Of a figure or a sweep only these values of λ, C, σ, ε or η, separated by commas."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, …, each with its own partition.")] = 1,
    scale: Annotated[
        str, typer.Option(help="smoke (seconds), small, brief, laptop (minutes per run), paper (as in the paper).")
    ] = "small",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; one per core if left out.")] = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster whose cores run them instead, or auto.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the runs are kept; a run that is there is not run again.")] = Path(
        "runs/reproduce"
    ),
    log: Annotated[str | None, typer.Option(help="Also log to tensorboard or mlflow.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write it into this folder: .json, .md, .png and .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, and nothing else.")] = False,
) -> None:
    """Run a table or figure of the paper and compare what was measured with what was printed.

    For example: fedfdp reproduce table3 --dataset mnist --seeds 3
    """
    from fedfdp.experiments import render, runner, specs, tuning
    from fedfdp.experiments.scales import find_scale
    from fedfdp.runs.tracking import check_tracking

    find_scale(scale)
    check_tracking(log)
    if name == "table1":
        _table1(scale, save, as_json=as_json)
        return
    rows, values = ([part.strip() for part in given.split(",")] if given else [] for given in (methods, at))
    experiment = runner.narrowed(specs.find(name), datasets=dataset or [], methods=rows, at=values)
    run = partial(_run, scale_name=scale, out=out, seeds=seeds, jobs=jobs, ray=ray, log=log)
    results = tuning.in_turn(experiment, run) if name.startswith("tune") else run(experiment)
    if save is not None:
        from fedfdp.experiments.figures import draw

        file = save / "-".join([name, *(dataset or []), scale])
        _write(file, results.to_dict(), render.markdown(results))
        for suffix in (".png", ".pdf"):
            draw(results, file.with_name(file.name + suffix))
    if as_json:
        print(json.dumps(results.to_dict(), indent=1))
    else:
        print(render.text(results, width=None if sys.stdout.isatty() else 200), end="")
        if name.startswith("tune"):
            print(tuning.to_toml(results), end="")


def _run(
    experiment: "Experiment",
    *,
    scale_name: str,
    out: Path,
    seeds: int,
    jobs: int | None,
    ray: str | None,
    log: str | None,
) -> "Results":
    from fedfdp.cli.sweep_progress import SweepWatcher
    from fedfdp.experiments.runner import plan_runs, reproduce
    from fedfdp.experiments.scales import find_scale
    from fedfdp.runs.store import Store

    scale, store = find_scale(scale_name), Store(out)
    planned = plan_runs(experiment, scale, experiment.seeds or range(seeds))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rounds = {store.path(p.config).name: p.config.rounds or 0 for p in planned}
    try:
        with SweepWatcher(rounds) as watcher:
            return reproduce(experiment, scale, store, seeds=seeds, jobs=jobs, ray=ray, log=log, watch=watcher)
    except KeyboardInterrupt:
        print("fedfdp: interrupted; the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None


def _table1(scale: str, save: Path | None, *, as_json: bool) -> None:
    from fedfdp.experiments import render
    from fedfdp.experiments.scales import find_scale
    from fedfdp.experiments.traffic import table1

    found, block = table1(find_scale(scale))
    if save is not None:
        _write(save / f"table1-{scale}", found, f"### table1: communication\n\n{render.block_markdown(block)}")
    print(json.dumps(found, indent=1) if as_json else render.block_text(block, width=160), end="")


def _write(file: Path, found: dict[str, object], page: str) -> None:
    """Writes the raw numbers and the section for the page. Names hold dots, so suffixes are added by hand."""
    from fedfdp.runs.folder import RunFolder

    with RunFolder(file.parent).writing():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{file.name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        file.with_name(f"{file.name}.md").write_text(page, encoding="utf-8")
