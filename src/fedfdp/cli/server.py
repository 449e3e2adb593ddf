"""fedfdp server: the coordinator of runs across machines."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def server(
    config: Annotated[str | None, typer.Option(help="The run's config, with a \\[flower] section.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; none: a new one below runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    make_certificates: Annotated[Path | None, typer.Option(help="Only make TLS certificates, in this folder.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="A name or address that nodes reach this machine by.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the run on a local page while it goes on.")] = False,
    port: Annotated[int | None, typer.Option(help="Where that page listens; none: 8765, or a free one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary, as JSON, alone on stdout.")] = False,
) -> None:
    """Coordinate a run: listen for the nodes that are registered, and train with them round by round."""
    from fedfdp.core.errors import SettingError
    from fedfdp.engines.flower import require_flower

    require_flower()
    if make_certificates is not None:
        from fedfdp.engines.flower.security import make_certificates as make

        made = make(make_certificates, host or ["localhost", "127.0.0.1"])
        print(f"{made.key} stays here; give every node {made.authority}")
        return
    if config is None:
        raise SettingError("--config", None, "needed: the run's settings", "see docs/deploy.md")
    _coordinate(config, set_ or [], out, resume, as_json, watch, port)


def _coordinate(
    source: str,
    overrides: list[str],
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    watch: bool,
    port: int | None,
) -> None:
    import logging
    import signal

    from fedfdp.cli.progress import Watcher
    from fedfdp.cli.watch import beside
    from fedfdp.core.errors import RunError
    from fedfdp.deploy.coordinator import Network, check, coordinate, load
    from fedfdp.engines.flower.superlink import listening
    from fedfdp.runs.assemble import check_folder
    from fedfdp.runs.build import free_folder
    from fedfdp.runs.folder import RunFolder

    if resume is not None and out is not None:
        raise RunError(f"--resume {resume} goes on in that folder; leave out --out")
    config, settings = load(source, overrides)
    if not config.open:
        config = config.resolved()
    folder = resume or out or free_folder(Path("runs"), config.name)
    if resume is not None and (found := RunFolder.find(resume)).finished:  # no fault: its unit starts it again
        if as_json:
            print(json.dumps(found.summary()))
        print(f"fedfdp: {resume} is finished; there is nothing to resume: see fedfdp show {resume}", file=sys.stderr)
        return
    check(config, settings)  # before nodes are waited for, which may take hours
    check_folder(folder, resume is not None)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with beside(folder, port, wanted=watch) as say, Watcher(config) as watcher, listening(settings) as link:
        print(f"listening on {settings.address}", file=sys.stderr)
        network = Network(link.grid, link.node_ids, link.meter, owners=link.owners)
        try:
            result = coordinate(
                config, settings, network, out=folder, resume=resume is not None, on_update=watcher, say=say
            )
        except KeyboardInterrupt as ended:
            watcher.stop()
            again = f"fedfdp server --config {source} --resume {folder}"
            print(f"fedfdp: {str(ended) or 'interrupted'}; continue with: {again}", file=sys.stderr)
            raise SystemExit(130) from None
    if as_json:
        print(json.dumps(result.summary))
    else:
        watcher.show(result)
