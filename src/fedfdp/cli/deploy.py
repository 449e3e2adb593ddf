"""fedfdp deploy local: a run across processes on this machine, to try it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Deployments across machines; `local` tries one on this machine.", no_args_is_help=True)


@app.callback()
def _commands() -> None:
    """Keeps `local` a command of its own."""


@app.command()
def local(
    source: Annotated[str | None, typer.Argument(help="A preset or a .toml file; none: digits.")] = None,
    nodes: Annotated[int | None, typer.Option(help="How many nodes; none: the config's clients.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; none: a new one below runs/.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the run on a local page while it goes on.")] = False,
    port: Annotated[int | None, typer.Option(help="Where that page listens; none: 8765, or a free one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary, as JSON, alone on stdout.")] = False,
) -> None:
    """Run a config with a process for each data holder, over loopback, with TLS and keys made on the fly."""
    import logging
    import signal

    from fedfdp.engines.flower import require_flower

    require_flower()
    from fedfdp.cli.progress import Watcher
    from fedfdp.cli.watch import beside
    from fedfdp.deploy.coordinator import load
    from fedfdp.deploy.local import deploy_local
    from fedfdp.runs.build import federation_of, fitted, free_folder

    overrides = [*(set_ or []), *([f"data.clients={nodes}"] if nodes is not None else [])]
    config, settings = load(source or "digits", overrides)
    config = fitted(config, federation_of(config))
    folder = out or free_folder(Path("runs"), config.name)
    place = folder.with_name(folder.name + ".nodes")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with beside(folder, port, wanted=watch) as say, Watcher(config) as watcher:
        try:
            result = deploy_local(config, settings, out=folder, place=place, on_update=watcher, say=say)
        except KeyboardInterrupt as ended:
            watcher.stop()
            print(f"fedfdp: {str(ended) or 'interrupted'}; the nodes' ledgers are in {place}", file=sys.stderr)
            raise SystemExit(130) from None
    if as_json:
        print(json.dumps(result.summary))
    else:
        watcher.show(result)
        print(f"each node's key, ledger and log: {place}; evaluated on raw records, as real nodes are not by default")
