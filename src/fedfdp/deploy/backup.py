"""Backup of a node's folder, and what its owner declares after one was put back: it can never un-spend.

A copy of a ledger knows nothing of what was spent after it was made. So a node whose ledger is older than its second
copy does not start, and once its owner has declared it, it assumes that all that it was allowed was spent.
"""

import io
import json
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import DamagedError, RunError, SettingError
from fedfdp.engines.flower import memory
from fedfdp.engines.flower.book import LEDGER, open_book, unit_of
from fedfdp.engines.flower.judging import EVALUATIONS
from fedfdp.engines.flower.memory import STATE
from fedfdp.engines.flower.node import STOPPED
from fedfdp.engines.flower.policy import NodeConfig, load_node
from fedfdp.engines.flower.sides import SIDES, Sides
from fedfdp.engines.flower.unnoised import ASSUMED, UNNOISED
from fedfdp.engines.flower.witness import MARK, Witness
from fedfdp.privacy.accounting.events import Event, repeat
from fedfdp.privacy.ledger.file import Entry, entry_of
from fedfdp.privacy.ledger.journal import announced, head_of, sound_lines
from fedfdp.privacy.ledger.ledger import BEFORE, Ledger
from fedfdp.privacy.ledger.periods import Today, utc_today
from fedfdp.privacy.ledger.reading import read_ledger

MOST_COUNTED = 10**9  # of equal charges, as a coordinator takes them
_KEPT = (STOPPED, EVALUATIONS, UNNOISED, STATE, MARK, SIDES)


def back_up(config: NodeConfig, out: Path) -> int:
    """Writes the folder's files to a tar file, also while the node runs; returns how many charges it holds.

    The ledger is read last, and its head before it: a ledger that is longer than its head says is a valid one.
    """
    folder = Path(config.folder)
    if not (folder / LEDGER).is_file():
        raise RunError(f"{folder / LEDGER}: there is no ledger yet, so there is nothing to keep")
    if out.exists():
        raise SettingError("out", str(out), "exists already", "give a new name: older backups stay useful")
    kept = {name: (folder / name).read_bytes() for name in _KEPT if (folder / name).is_file()}
    kept[head_of(Path(LEDGER)).name] = head_of(folder / LEDGER).read_bytes()
    lines = (folder / LEDGER).read_bytes()
    whole, fault = sound_lines(lines)
    if fault or not whole:
        raise RunError(f"{folder / LEDGER} is damaged: {fault or 'it is empty'}; a backup of it would be of no use")
    kept[LEDGER] = b"".join(whole)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in kept.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o600
            archive.addfile(about, io.BytesIO(content))
    files.write_whole(out, packed.getvalue(), private=True)
    return len(whole) - 1


@dataclass(frozen=True)
class Declared:
    """What a declaration came to."""

    found: int  # charges that only the second copy had
    assumed: int  # charges that nobody knows of, and that are counted
    epsilon: float  # what the node has to claim now


def declare_restored(path: Path, *, by_witness: bool = False, today: Today = utc_today) -> Declared:
    """The owner says that an older copy of the folder was put back. Only the node's own machine can say it.

    What the second copy has is charged. Unless its owner vouches for it (`by_witness`), as many rounds as the budget
    allowed are charged on top: the node will take part in no further private round, and claims its whole budget.
    """
    config = load_node(path)
    folder, policy = Path(config.folder), config.policy
    witness = Witness(config.second, folder / LEDGER)
    folder.mkdir(parents=True, exist_ok=True)
    if by_witness:
        _check_vouched(witness, config.name)
        _set_aside_damaged(folder / LEDGER)
    known, _ = sound_lines(witness.lines())
    begun_anew = known and not (folder / LEDGER).exists()
    with open_book(config, today, unit_of(json.loads(known[0])) if begun_anew else None) as book:
        # First what is safe to do twice: a declaration that is cut short here is declared again.
        files.write_whole(folder / EVALUATIONS, json.dumps({"answered": policy.evaluations}).encode())
        replace(Sides.load(folder, used=True), closed=True).save(folder)  # who came since may have been trained on
        (folder / STATE).unlink(missing_ok=True)  # what it remembers of a run is older than what it sent
        ledger = book.ledger(config.name)
        lost, assumed = [entry_of(json.loads(line)) for line in witness.lost()], 0
        for entry in lost:
            ledger.adopt(entry)
        if not by_witness:
            rounds = [entry.events for entry in book.entries() if entry.round != BEFORE]
            assumed = _all_that_fits(ledger, [*rounds[-1:], (policy.dearest,)])
        said = ledger.epsilon()
    witness.begin_anew()
    return Declared(len(lost), assumed, said)


def _check_vouched(witness: Witness, name: str) -> None:
    """Raises unless the second copy is whole, this node's, and has at least the charges that the folder knows of."""
    if not witness.path.is_file():
        raise SettingError("--by-witness", str(witness.path), "there is no such file", "leave it out, or bring it here")
    (known, fault), fix = sound_lines(witness.lines()), "leave it out, or bring the newest copy"
    if fault or not known:
        allowed = f"it is damaged: {fault}" if fault else "it is empty"
        raise SettingError("--by-witness", str(witness.path), allowed, fix)
    whose = json.loads(known[0]).get("client")
    if whose != name:
        raise SettingError("--by-witness", str(witness.path), f"the copy of {whose!r}, not of {name!r}", fix)
    folder, content = witness.ledger.parent, witness.ledger.read_bytes() if witness.ledger.is_file() else b""
    # Damaged lines count too, and what was cut from the ledger, by its head.
    shown = max(content.count(b"\n"), announced(witness.ledger) + 1)
    if len(known) < shown - 1:  # one that only the ledger has was never answered
        allowed = f"it has {len(known) - 1} charges, the folder {shown - 1}: it is older"
        raise SettingError("--by-witness", str(witness.path), allowed, fix)
    # A charge is of one batch or of many. The copy had all of them before the memory of an answer was written.
    batches, answered = _batches(known[1:]), memory.load(folder).charged
    if batches < answered:
        allowed = f"it has charges of {batches} batches, the last answer was sent after {answered}: it is older"
        raise SettingError("--by-witness", str(witness.path), allowed, fix)
    sound, damaged = sound_lines(content)
    if damaged and sound[: len(known)] != known[: len(sound)]:
        allowed = "it is no copy of the part of the ledger that can be read"
        raise SettingError("--by-witness", str(witness.path), allowed, fix)


def _batches(lines: list[bytes]) -> int:
    """How many batches these charges are of, as `LedgerBook.charged` counts them."""
    return sum(event.count for line in lines for event in entry_of(json.loads(line)).events)


def _set_aside_damaged(ledger: Path) -> None:
    """A ledger that cannot be trusted makes room for one out of the second copy; it is kept beside it."""
    try:
        if ledger.exists():
            read_ledger(ledger)
    except DamagedError:
        if files.held(ledger):
            return  # by a node that runs: it is not opened either
        number = next(n for n in range(1, 10**6) if not ledger.with_name(f"{ledger.name}.damaged-{n}").exists())
        for file in (head_of(ledger), ledger):
            if file.exists():
                file.rename(file.with_name(f"{file.name}.damaged-{number}"))


def _all_that_fits(ledger: Ledger, prices: list[tuple[Event, ...]]) -> int:
    """Charges one round more than the budget has room for, so that nothing is left whatever was lost."""
    for events in prices:
        if (count := ledger.most(events) + 1) < MOST_COUNTED:
            what = Entry(ledger.client, BEFORE, 0, "0" * 32, repeat(events, count), ASSUMED, ledger.today())
            ledger.adopt(what)
            return count
    raise RunError("policy.epsilon has room for more rounds than can be counted; begin a new ledger for new records")
