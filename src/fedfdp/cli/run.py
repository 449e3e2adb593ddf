"""fedfdp run: train, watch, and keep the result in a folder."""

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from fedfdp.data import Federation
    from fedfdp.runs.config import Config


def run(
    source: Annotated[str | None, typer.Argument(help="A preset or a .toml file; none: the preset mnist.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; none: a new one below runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary, as JSON, alone on stdout.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Write report.html into the run's folder at the end.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show the run on a local page while it goes on.")] = False,
    port: Annotated[int | None, typer.Option(help="Where that page listens; none: 8765, or a free one.")] = None,
    log: Annotated[str | None, typer.Option(help="Also log to tensorboard or mlflow, beside the run's folder.")] = None,
) -> None:
    """Train a model across data holders: privately, fairly, and to the end of the budget."""
    from fedfdp.cli.progress import Watcher
    from fedfdp.cli.watch import beside
    from fedfdp.core.errors import DivergedError, RunError
    from fedfdp.runs.build import free_folder, launch, stored_config
    from fedfdp.runs.folder import RunFolder
    from fedfdp.runs.session import Result, Update
    from fedfdp.runs.tracking import check_tracking, tracker

    check_tracking(log)
    if resume is not None:
        if source is not None or out is not None:
            raise RunError(f"--resume {resume} takes the run as it was started; leave out the preset and --out")
        folder, config = resume, stored_config(RunFolder.find(resume), set_ or [])
        federation = None
    else:
        config, federation = _prepared(source, set_ or [])
        _warn_of_noise(config, federation)
        folder = out or free_folder(Path("runs"), config.name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    diverged: DivergedError | None = None
    with (
        beside(folder, port, wanted=watch),
        Watcher(config) as watcher,
        tracker(log, folder.parent, folder.name, config.to_dict()) as track,
    ):

        def each(update: Update) -> None:
            track(update)
            watcher(update)

        try:
            result = launch(config, out=folder, resume=resume is not None, federation=federation, on_update=each)
        except DivergedError as error:
            watcher.stop()
            result, diverged = cast(Result, error.result), error
        except KeyboardInterrupt as ended:
            watcher.stop()
            print(
                f"fedfdp: {str(ended) or 'interrupted'}; continue with: fedfdp run --resume {folder}", file=sys.stderr
            )
            raise SystemExit(130) from None
    if as_json:
        print(json.dumps(result.summary))
    else:
        watcher.show(result)
        _say_unspent(config)
    page = _report(folder) if report else None
    if not as_json:
        print(f"report: {page}" if page else f"see it as a page: fedfdp report {shlex.quote(str(folder))}")
    if diverged is not None:
        raise diverged


def _warn_of_noise(config: "Config", federation: "Federation") -> None:
    """Says on stderr, before training, if the budget is too small for these records; not if it is not used up."""
    from fedfdp.runs.build import facts_of
    from fedfdp.training.budget import USED_UP, part_used
    from fedfdp.training.strength import Strength

    if config.privacy is None or config.rounds is None:
        return
    facts, share = facts_of(config, federation), config.participation.fraction
    strength = Strength.of(facts, config.algorithm, config.privacy, config.rounds, share)
    said = strength.warning(config.privacy.epsilon)
    if not said or config.algorithm.adaptive:
        return
    before = config.data.before
    if part_used(config.privacy, config.algorithm, config.rounds, share=share, before=before) > USED_UP:
        print(f"fedfdp: {said}", file=sys.stderr)


def _say_unspent(config: "Config") -> None:
    """Says what would use the rest of the budget, if much of it is left."""
    from fedfdp.training.budget import unspent

    if config.privacy is not None and config.rounds is not None:
        share, before = config.participation.fraction, config.data.before
        if said := unspent(config.privacy, config.algorithm, config.rounds, share=share, before=before):
            print(said)


def _report(folder: Path) -> Path:
    from fedfdp.report.contents import document
    from fedfdp.report.page import PAGE, write_page
    from fedfdp.runs.folder import RunFolder

    write_page(document([RunFolder(folder)]), folder / PAGE)
    return folder / PAGE


def _usual(overrides: list[str]) -> str:
    """Without a preset's name: the one for MNIST, or the one that suits any records if others are asked for."""
    from fedfdp.runs.layers import override

    given = override({}, overrides)
    data = given.get("data")
    other = "model" in given or (isinstance(data, dict) and "source" in data)
    return "default" if other else "mnist"


def _prepared(source: str | None, overrides: list[str]) -> tuple["Config", "Federation"]:
    """The config, checked, and its records; without a name it falls back on records that need no network."""
    from rich.console import Console

    from fedfdp.cli.data_progress import Progress
    from fedfdp.core.errors import DataError
    from fedfdp.runs import config as configs
    from fedfdp.runs.build import federation_of, fitted, inner_of

    config = configs.load(source or _usual(overrides), overrides)
    if not config.open:
        config.resolved()  # what is wrong is said before records are read
    if config.data.unchecked:
        names = ", ".join(config.data.unchecked)
        print(f"fedfdp: not public yet, and not covered by ε: what data.columns says of {names}", file=sys.stderr)
    try:
        with Progress(Console(stderr=True), config.data.source) as say:
            federation = federation_of(config, progress=say)
            config = fitted(config, federation)
            inner_of(config, federation, progress=say)  # training finds the features in the cache
        return config, federation
    except DataError as unavailable:
        if source is not None or config.data.source == "digits":
            raise
        print(f"fedfdp: {unavailable}\nfedfdp: training on scikit-learn's digits instead", file=sys.stderr)
    config = configs.load("digits", overrides)
    federation = federation_of(config)
    return fitted(config, federation), federation
