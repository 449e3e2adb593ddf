"""Each client's own account of what it released: charged and written before anything leaves, within its own budget.

A ledger never gives anything back, and never trusts who asks: the budget is checked here whatever the server wants.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from fedfdp.core.errors import BudgetError, RunError, SettingError, nearest
from fedfdp.privacy.accounting.accountant import history_epsilon
from fedfdp.privacy.accounting.events import Adjacency, Event, History, contains, history_of, merge
from fedfdp.privacy.ledger.allowance import AdaptiveSchedule, FixedSchedule, Limit, check_enforcer
from fedfdp.privacy.ledger.journal import Journal, inherited


@dataclass(frozen=True)
class Entry:
    """One charge, as the ledger holds it."""

    client: str
    round: int
    attempt: int
    request: str
    events: tuple[Event, ...]


class LedgerBook(AbstractContextManager["LedgerBook"]):
    """The ledgers of many clients in one file: one lock, one descriptor, and for each its own budget and history."""

    def __init__(
        self, journal: Journal | None, *, budgets: Mapping[str, float | None], delta: float, accountant: str
    ) -> None:
        self.delta, self.accountant = delta, check_enforcer(accountant)
        if self.accountant == "filter" and None in budgets.values():
            raise SettingError("budget", None, "a filter stops at a budget", "set epsilon, or use pld or rdp")
        self._journal = journal
        self._process = os.getpid()  # a copy of this book in a forked child would spend everything a second time
        self._limits: dict[float | None, Limit] = {}
        self._ledgers = {client: Ledger(self, client, budget) for client, budget in budgets.items()}

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        data: str,
        config: str,
        budgets: Mapping[str, float | None],
        delta: float,
        accountant: str = "pld",
        sync: bool = True,
    ) -> "LedgerBook":
        """Begins or resumes the file (None: in memory). A file of other data, config, clients or budgets is refused.

        sync=False, for simulations, is as safe against the end of the process; against the end of the machine once
        `sync` was called, which must be before anything that came of a charge is written.
        """
        clients: object = next(iter(budgets)) if len(budgets) == 1 else _fingerprint(sorted(budgets))
        same = set(budgets.values())
        header = {
            "client" if len(budgets) == 1 else "clients": clients,
            "data": data,
            "config": config,
            "budget": next(iter(same)) if len(same) == 1 else _fingerprint(sorted(budgets.items())),
            "delta": delta,
            "accountant": accountant,
        }
        book = cls(None, budgets=budgets, delta=delta, accountant=accountant)  # refuses settings before there is a file
        if path is None:
            return book
        book._journal = Journal.open(path, sync=sync)
        try:
            for entry in book._journal.recover(header):
                book.ledger(entry["client"])._restore(_entry(entry))
        except BaseException:
            book._journal.close()
            raise
        return book

    def ledger(self, client: str) -> "Ledger":
        if client not in self._ledgers:
            raise RunError(f"client {client!r} has no account in this ledger; {nearest(client, self._ledgers)}")
        return self._ledgers[client]

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        """Of the client that spent most, exact."""
        return max((ledger.epsilon(adjacency) for ledger in self._dearest()), default=0.0)

    def epsilon_upper_bound(self) -> float:
        """The same for every round: cheap, never below, at most about half a percent above."""
        return max((ledger.epsilon_upper_bound() for ledger in self._dearest()), default=0.0)

    def charged(self) -> int:
        """Events charged so far, over all clients: a ledger only ever grows."""
        return sum(count for ledger in self._ledgers.values() for _, _, count in ledger.history)

    def entries(self) -> Iterator[Entry]:
        if self._journal is None:
            raise RunError("a ledger in memory keeps totals, not entries; open it with a path to have them")
        return map(_entry, self._journal.entries())

    def sync(self) -> None:
        if self._journal is not None:
            self._journal.sync()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _dearest(self) -> list["Ledger"]:
        """Those that may have spent most: equal histories are priced once, and none that another one contains."""
        if self.accountant == "filter":  # each at its own order, and cheap
            return list(self._ledgers.values())
        different = {ledger.history: ledger for ledger in self._ledgers.values()}
        dearest: list[Ledger] = []
        for history in sorted(different, key=lambda history: -sum(count for _, _, count in history)):
            if not any(contains(other.history, history) for other in dearest):
                dearest.append(different[history])
        return dearest

    def _limit(self, budget: float | None, first: Sequence[Event]) -> Limit:
        if self.accountant == "filter":
            assert budget is not None
            return AdaptiveSchedule(budget, self.delta, first)
        if budget not in self._limits:
            self._limits[budget] = FixedSchedule(budget, self.delta, self.accountant)
        return self._limits[budget]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise inherited(self._journal.path if self._journal else "this ledger", self._process)

    def _write(self, entry: Entry) -> None:
        if self._journal is not None:
            events = [[event.q, list(event.sigmas), event.count] for event in entry.events]
            self._journal.append({**vars(entry), "events": events})


class Ledger(AbstractContextManager["Ledger"]):
    """One client's account: its history, its budget, and which request was answered by which attempt.

    Under `pld` and `rdp` every round has the price of the first: their numbers are for schedules fixed beforehand, and
    a server that picks a price by what it has seen has fixed nothing. What a round releases may differ: at one price,
    each is dominated by the same pair of distributions, whatever was seen before it. A filter takes any price.
    """

    def __init__(self, book: LedgerBook, client: str, budget: float | None) -> None:
        self.client, self.budget = client, budget
        self.history: History = ()
        self.price: History = ()  # of the first round
        self._book = book
        self._attempts: dict[int, bytes] = {}  # by round, the digest of the request of each attempt
        self._limit: Limit | None = None if book.accountant == "filter" else book._limit(budget, ())

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        client: str,
        data: str,
        config: str,
        budget: float | None,
        delta: float,
        accountant: str = "pld",
        sync: bool = True,
    ) -> "Ledger":
        """A file for one client alone; otherwise as `LedgerBook.open`."""
        book = LedgerBook.open(
            path, data=data, config=config, budgets={client: budget}, delta=delta, accountant=accountant, sync=sync
        )
        return book.ledger(client)

    def afford(self, events: Sequence[Event]) -> bool:
        """Whether a new charge of these events fits. A replay needs no room: `charge` knows."""
        return self._limit_for(events).affords(self.history, _history(tuple(events)))

    def takes(self, events: Sequence[Event]) -> bool:
        """Whether a round of these events has a price that this ledger allows, if there is room for it."""
        return self._book.accountant == "filter" or _history(tuple(events)) == (self.price or _history(tuple(events)))

    def charge_before(self, what: str, events: Sequence[Event]) -> None:
        """Pays for what is released once, before the first round; asked again, the same is free."""
        self._charge(BEFORE, what, tuple(events), replayable=True)

    def charge(self, round: int, request: str, events: Sequence[Event], *, replayable: bool) -> int:
        """Pays for a request and returns its attempt number; once this returns, it is written.

        The identical request of the same round again is the same attempt, and free, if its answer is replayable: the
        same bytes will be released again. Anything else is a new attempt, which must draw a fresh batch and fresh
        noise. Raises BudgetError, and writes nothing, if it does not fit the client's own budget.
        """
        events = tuple(events)
        if round < 0 or not events:
            raise SettingError("round", round, "a charge has a round of at least 0 and at least one event")
        return self._charge(round, request, events, replayable)

    def _charge(self, round: int, request: str, events: tuple[Event, ...], replayable: bool) -> int:
        self._book._check_process()
        digest = _request_digest(request, events)
        before = self._attempts.get(round, b"")
        if replayable and digest in (known := _split(before)):
            return known.index(digest)
        if self.price and (round == BEFORE or not self.takes(events)):
            raise RunError(
                f"client {self.client!r}: round {round} costs {in_words(_history(events))}, the first cost "
                f"{in_words(self.price)}; {self._book.accountant} is for rounds of one price: keep to it, or begin a "
                f"ledger with the filter (adaptive = True in a method)"
            )
        limit = self._limit_for(events)
        if not limit.affords(self.history, _history(events)):
            raise BudgetError(
                f"client {self.client!r}: round {round} does not fit epsilon = {self.budget:g} "
                f"({limit.epsilon(self.history):.4g} spent); the client sits out, or its owner raises the budget"
            )
        entry = Entry(self.client, round, len(before) // _DIGEST, digest.hex(), events)
        self._book._write(entry)
        self._restore(entry)
        return entry.attempt

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        """What may be claimed, exact: what was spent, or under a filter the budget, however little of it was used.

        A filter promises its budget for zero-out alone: there is no number for replace-one.
        """
        if not self.history or self._limit is None:
            return 0.0
        if self._book.accountant == "filter":
            return self.budget if self.budget is not None and adjacency == "zero-out" else math.inf
        if adjacency == "replace-one":
            method = "pld" if self._book.accountant == "pld" else "rdp"
            return history_epsilon(self.history, self._book.delta, method, adjacency)
        return self._limit.epsilon(self.history)

    def epsilon_upper_bound(self) -> float:
        """What was spent, for display after every round: never below `epsilon`, and cheap."""
        return self._limit.upper_bound(self.history) if self.history and self._limit else 0.0

    def entries(self) -> Iterator[Entry]:
        return (entry for entry in self._book.entries() if entry.client == self.client)

    def sync(self) -> None:
        self._book.sync()

    def close(self) -> None:
        self._book.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _limit_for(self, events: Sequence[Event]) -> Limit:
        return self._limit or self._book._limit(self.budget, events)

    def _restore(self, entry: Entry) -> None:
        self._limit = self._limit_for(entry.events)
        self.history = _together(self.history, _history(entry.events))
        if entry.round != BEFORE:
            self.price = self.price or _history(entry.events)
        before = self._attempts.get(entry.round, b"")
        if entry.attempt != len(before) // _DIGEST:
            raise RunError(f"client {self.client!r}: attempt {entry.attempt} of round {entry.round} is out of order")
        self._attempts[entry.round] = before + bytes.fromhex(entry.request)


BEFORE = -1  # the round of what is released before the first
_DIGEST = 16

_history = lru_cache(maxsize=1024)(history_of)
_together = lru_cache(maxsize=1024)(merge)  # equal spending has equal histories: one sum serves all who spent the same


def _request_digest(request: str, events: tuple[Event, ...]) -> bytes:
    """Of the request and its price: the same broadcast asked at another price is another request."""
    return hashlib.sha256(f"{_price(events)}\n{request}".encode()).digest()[:_DIGEST]


@lru_cache(maxsize=1024)
def _price(events: tuple[Event, ...]) -> str:
    return repr([(event.q, event.sigmas, event.count) for event in events])


def in_words(price: History) -> str:
    return " and ".join(f"{count} × (q {q:g}, σ {sigma:.4g})" for q, sigma, count in price)


def _split(digests: bytes) -> list[bytes]:
    return [digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)]


def _entry(line: dict[str, Any]) -> Entry:
    events = tuple(Event(q, tuple(sigmas), count) for q, sigmas, count in line["events"])
    return Entry(line["client"], line["round"], line["attempt"], line["request"], events)


def _fingerprint(value: object) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
