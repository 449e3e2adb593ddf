"""fedfdp run: train, watch, and keep the result in a folder."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.config import Config
    from fedfdp.data import Federation


def run(
    source: Annotated[str | None, typer.Argument(help="A preset or a .toml file; none: the default preset.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; none: a new one below runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary, as JSON, alone on stdout.")] = False,
) -> None:
    """Train a model across data holders: privately, fairly, and to the end of the budget."""
    from fedfdp.cli.progress import Watcher
    from fedfdp.errors import RunError
    from fedfdp.runs.folder import RunFolder
    from fedfdp.runs.launch import free_folder, launch, stored_config

    if resume is not None:
        if source is not None or out is not None:
            raise RunError(f"--resume {resume} takes the run as it was started; leave out the preset and --out")
        folder, config = resume, stored_config(RunFolder.find(resume), set_ or [])
        federation = None
    else:
        config, federation = _prepared(source, set_ or [])
        folder = out or free_folder(Path("runs"), config.name)
    signal.signal(signal.SIGTERM, _interrupt)
    with Watcher(config) as watcher:
        try:
            result = launch(config, out=folder, resume=resume is not None, federation=federation, on_update=watcher)
        except KeyboardInterrupt:
            watcher.stop()
            print(f"fedfdp: interrupted; continue with: fedfdp run --resume {folder}", file=sys.stderr)
            raise SystemExit(130) from None
    if as_json:
        print(json.dumps(result.summary))
    else:
        watcher.show(result)


def _prepared(source: str | None, overrides: list[str]) -> tuple["Config", "Federation"]:
    """The config, checked, and its records; the default preset falls back on records that need no network."""
    from fedfdp import config as configs
    from fedfdp.errors import DataError
    from fedfdp.runs.launch import federation_of

    config = configs.load(source or "default", overrides).resolved()
    try:
        return config, federation_of(config)
    except DataError as unavailable:
        if source is not None or config.data.source == "digits":
            raise
        print(f"fedfdp: {unavailable}\nfedfdp: training on scikit-learn's digits instead", file=sys.stderr)
    config = configs.load("digits", overrides).resolved()
    return config, federation_of(config)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
