"""A ledger's file, read by whoever wants to know what was spent: every line checked, nothing written, no lock taken."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedfdp.core.errors import DamagedError, RunError
from fedfdp.privacy.accounting.events import History, history_of, merge
from fedfdp.privacy.ledger.file import Entry, entry_of
from fedfdp.privacy.ledger.journal import Journal, Line, head_of


@dataclass(frozen=True)
class Charges:
    """What a ledger shows: the rule in its first line, and the history of every client that was charged."""

    header: Line  # client or clients, data, config, budget, delta, accountant
    histories: dict[str, History] = field(default_factory=dict)

    @property
    def delta(self) -> float:
        return float(self.header["delta"])

    @property
    def accountant(self) -> str:
        return str(self.header["accountant"])

    @property
    def budget(self) -> float | None:
        """The one of all its clients; None where they have different ones, or none."""
        found = self.header.get("budget")
        return float(found) if isinstance(found, int | float) else None


def read_ledger(path: Path, each: Callable[[Entry], object] | None = None) -> Charges:
    """All charges so far, those of a run that goes on too. A file that was cut or edited is refused.

    `each` is called with every charge, in order.
    """
    if not path.is_file() or not path.stat().st_size:
        raise RunError(f"{path}: there is no ledger; give a run's or a node's folder")
    if not head_of(path).is_file():
        fix = "restore it, or begin a new run"
        raise DamagedError(f"{path}: this ledger cannot be trusted: its head file is missing; {fix}")
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            head = os.open(head_of(path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(file)
            raise
    except OSError as error:
        raise RunError(f"{error.filename}: the ledger cannot be read ({error.strerror}); check the folder") from None
    journal = Journal(path, file, head, sync=False, reads=True)
    histories: dict[str, History] = {}
    try:
        for line in journal.recover({}):
            entry = entry_of(line)
            if each is not None:
                each(entry)
            histories[entry.client] = merge(histories.get(entry.client, ()), history_of(entry.events))
        return Charges(journal.header, histories)
    finally:
        journal.leave()
