"""fedfdp node: a data holder's side of runs across machines."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def node(
    config: Annotated[Path | None, typer.Option(help="The node's settings: its data, its policy, its server.")] = None,
    make_key: Annotated[Path | None, typer.Option(help="Only make a key pair: PATH and PATH.pub.")] = None,
    poll: Annotated[float, typer.Option(help="Seconds between two looks for work.")] = 0.5,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Take part with your own records: what is released, and how much of it, is decided here."""
    from fedfdp.core.errors import SettingError
    from fedfdp.engines.flower import require_flower

    require_flower()
    if make_key is not None:
        from fedfdp.engines.flower.security import make_node_key

        print(f"{make_key} stays here; give the coordinator {make_node_key(make_key)}")
        return
    if config is None:
        raise SettingError("--config", None, "needed: the node's settings", "see docs/deploy.md")
    _serve(config, poll, parent)


def _serve(path: Path, poll: float, parent: int | None) -> None:
    import logging
    import signal

    import torch

    from fedfdp.deploy.node import open_node
    from fedfdp.engines.flower.policy import load_node
    from fedfdp.engines.flower.worker import serve

    config = load_node(path)
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        logging.StreamHandler(),
        logging.FileHandler(folder / "node.log", encoding="utf-8"),
    ]
    logging.basicConfig(level=logging.WARNING, handlers=handlers, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedfdp").setLevel(logging.INFO)
    if config.threads:
        torch.set_num_threads(config.threads)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_node(config) as holder:
        try:
            serve(holder, poll=poll, parent=parent)
        except KeyboardInterrupt:
            print(f"fedfdp: {config.name} leaves; its ledger and state are in {folder}", file=sys.stderr)
