"""fedfdp node: a data holder's side of runs across machines."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from fedfdp.deploy.spending import Spending

app = typer.Typer(help="A data holder's side: take part with your own records; look after the node.")

MOST_POLL = 600.0  # seconds

Place = Annotated[Path, typer.Argument(help="The node's folder, or its node.toml.", metavar="FOLDER|NODE.toml")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON, and nothing else.")]


@app.callback(invoke_without_command=True)
def node(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="The node's settings: its data, its policy, its server.")] = None,
    make_key: Annotated[Path | None, typer.Option(help="Only make a key pair: PATH and PATH.pub.")] = None,
    poll: Annotated[float, typer.Option(help="Seconds between two looks for work.")] = 0.5,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Take part with your own records: what is released, and how much of it, is decided here."""
    if context.invoked_subcommand is not None:
        return
    from fedfdp.core.errors import SettingError
    from fedfdp.engines.flower import require_flower

    require_flower()
    if make_key is not None:
        from fedfdp.engines.flower.security import make_node_key

        print(f"{make_key} stays here; give the coordinator {make_node_key(make_key)}")
        return
    if config is None:
        raise SettingError("--config", None, "needed: the node's settings", "see docs/deploy.md")
    if not 0 < poll <= MOST_POLL:  # NaN is neither
        raise SettingError("--poll", poll, f"seconds, above 0 and at most {MOST_POLL:g}", "0.5 is usual")
    _serve(config, poll, parent)


def _serve(path: Path, poll: float, parent: int | None) -> None:
    import logging
    import signal
    import threading

    import torch

    from fedfdp.deploy.log import PrivateLog
    from fedfdp.deploy.node import open_node
    from fedfdp.engines.flower.policy import load_node
    from fedfdp.engines.flower.worker import serve

    config = load_node(path)
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(), PrivateLog(folder / "node.log")]
    logging.basicConfig(level=logging.WARNING, handlers=handlers, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedfdp").setLevel(logging.INFO)
    if config.threads:
        torch.set_num_threads(config.threads)
    leave = threading.Event()

    def asked_to_leave(*_: object) -> None:
        """The first time: after the present question. The second time: at once, and what was charged stays charged."""
        if leave.is_set():
            raise KeyboardInterrupt
        leave.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, asked_to_leave)
    with open_node(config) as holder:
        with suppress(KeyboardInterrupt):
            serve(holder, poll=poll, parent=parent, leave=leave)
        print(f"fedfdp: {config.name} leaves; its ledger and state are in {folder}", file=sys.stderr)


@app.command()
def ledger(
    place: Place,
    by: Annotated[Literal["run", "date"], typer.Option(help="One line for each run, or for each day.")] = "run",
    as_json: AsJson = False,
) -> None:
    """What this node has spent, by run or by date, and what is left. It reads the ledger, and no record."""
    from fedfdp.deploy.spending import spending

    found = spending(place)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    _print_spending(found, by)


def _print_spending(found: "Spending", by: str) -> None:
    print(f"{found.client}: ε = {found.claim:.4f} at δ = {found.delta:g}, by {found.accountant} ({found.path})")
    if found.claim < (whole := found.left[0].budget):
        print(f"  for what was asked so far, had its end been fixed beforehand; whatever follows, ε = {whole:g} holds")
    if found.warning:
        print(f"  warning: {found.warning}")
    if found.unnoised:
        print(f"  warning: rounds were answered without noise, which no ε covers: {found.unnoised.in_words()}")
    for part in found.runs if by == "run" else found.days:
        when = f"{part.first or '?'} to {part.last or '?'}  " if by == "run" else ""
        rounds = f"{part.rounds} {'round' if part.rounds == 1 else 'rounds'}"
        named = " ".join(filter(None, (part.name, part.method)))
        print(f"  {when}{named}: {rounds}, alone ε = {found.epsilon(part):.4f}")
    for left in found.left:
        more = "" if left.rounds is None else f"; {left.rounds} more like the last one fit"
        print(f"  {left.what}: {left.used:.4f} of {left.budget:g} used{more}")


@app.command()
def backup(
    config: Annotated[Path, typer.Argument(help="The node's node.toml.", metavar="NODE.toml")],
    out: Annotated[Path, typer.Option(help="The backup, a new .tar.gz file.")],
) -> None:
    """Keep ledger and state in one file, also while the node runs. A backup that is put back can never un-spend."""
    from fedfdp.deploy.backup import back_up
    from fedfdp.engines.flower.policy import load_node

    count = back_up(load_node(config), out)
    print(f"{out} holds {count} charges; it has no records and not the node's key")


@app.command()
def restored(
    config: Annotated[Path, typer.Argument(help="The node's node.toml.", metavar="NODE.toml")],
    by_witness: Annotated[
        bool, typer.Option("--by-witness", help="You vouch that the second copy of the ledger is the newest there was.")
    ] = False,
) -> None:
    """Declare that an older copy of the folder was put back. What may have been spent since then counts as spent."""
    from fedfdp.deploy.backup import declare_restored

    done = declare_restored(config, by_witness=by_witness)
    print(f"{done.found} charges taken from the second copy, {done.assumed} assumed; ε = {done.epsilon:.4f} is claimed")
