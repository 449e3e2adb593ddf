"""The file of one or many ledgers: every charge is a line of it before anything is drawn. None: a ledger in memory.

It belongs to the process that opened it: a forked child is refused, or it would spend everything a second time.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.privacy.accounting.events import Event
from fedfdp.privacy.ledger.journal import Journal, Line, inherited


@dataclass(frozen=True)
class Entry:
    """One charge, as the ledger holds it."""

    client: str
    round: int
    attempt: int
    request: str  # the digest of what was asked, and at which price
    events: tuple[Event, ...]
    run: str = ""  # for whom, where the ledger serves many runs
    date: str = ""  # in UTC; empty where no dates are kept


class LedgerFile:
    """Entries on disk. After `open`, exhaust `recover` once, then `write`."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._process = os.getpid()

    @classmethod
    def open(cls, path: Path | None, *, sync: bool) -> "LedgerFile":
        return cls(None if path is None else Journal.open(path, sync=sync))

    def recover(self, header: Mapping[str, object], expects: Sequence[Event]) -> Iterator[Entry]:
        """Every entry so far. A file with another header is refused; a new one keeps what is expected of a round."""
        if self._journal is not None:
            yield from map(entry_of, self._journal.recover(header, {"expects": _lists(expects)} if expects else {}))

    def expects(self, given: Sequence[Event]) -> tuple[Event, ...]:
        """What a round was expected to cost when the file was begun; in memory, what is given."""
        return tuple(given) if self._journal is None else _events(self._journal.header.get("expects", []))

    def check_process(self) -> None:
        if os.getpid() != self._process:
            raise inherited(self._journal.path if self._journal else "this ledger", self._process)

    def write(self, entry: Entry) -> None:
        if self._journal is not None:
            known = {name: value for name, value in vars(entry).items() if value != "" or name == "request"}
            self._journal.append({**known, "events": _lists(entry.events)})

    def entries(self) -> Iterator[Entry]:
        if self._journal is None:
            raise RunError("a ledger in memory keeps totals, not entries; open it with a path to have them")
        return map(entry_of, self._journal.entries())

    def sync(self) -> None:
        if self._journal is not None:
            self._journal.sync()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def header_of(
    budgets: Mapping[str, float | None], *, data: str, config: str, delta: float, accountant: str
) -> dict[str, object]:
    """What the first line says: whose ledger it is, of which data and config, and under which rule."""
    one, same = len(budgets) == 1, set(budgets.values())
    return {
        "client" if one else "clients": next(iter(budgets)) if one else _fingerprint(sorted(budgets)),
        "data": data,
        "config": config,
        "budget": next(iter(same)) if len(same) == 1 else _fingerprint(sorted(budgets.items())),
        "delta": delta,
        "accountant": accountant,
    }


def _lists(events: Sequence[Event]) -> list[list[object]]:
    return [[event.q, list(event.sigmas), event.count] for event in events]


def _events(lists: Sequence[tuple[float, list[float], int]]) -> tuple[Event, ...]:
    return tuple([_event(q, tuple(sigmas), count) for q, sigmas, count in lists])


_event = lru_cache(maxsize=1024, typed=True)(Event)  # checked once: a file has few kinds, and thousands of each


def entry_of(line: Line) -> Entry:
    """A line of the file as a charge."""
    what = line["client"], line["round"], line["attempt"], line["request"], _events(line["events"])
    return Entry(*what, run=line.get("run", ""), date=line.get("date", ""))


def _fingerprint(value: object) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
