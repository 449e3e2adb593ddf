"""One client's own account of what it released: charged and written before anything leaves, within its own budget.

A ledger never gives anything back, and never trusts who asks: the budget is checked here whatever the server wants.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

from fedfdp.core.errors import BudgetError, RunError, SettingError, nearest
from fedfdp.privacy.accounting.events import Adjacency, Event, History, history_of, merge
from fedfdp.privacy.ledger.allowance import Allowance, Allowances
from fedfdp.privacy.ledger.file import Entry, LedgerFile, header_of
from fedfdp.privacy.ledger.periods import Dates

BEFORE = -1  # the round of what is released before the first
_ROUND, _DIGEST = 8, 16  # bytes
_CHARGE = _ROUND + _DIGEST

_history = lru_cache(maxsize=1024)(history_of)
_together = lru_cache(maxsize=1024)(merge)  # clients that spent the same share one merged history


class Ledger(AbstractContextManager["Ledger"]):
    """One client's account: its history, its budget, and which request was answered by which attempt.

    Under `pld` and `rdp` every round has the price of the first: their numbers are for schedules fixed beforehand, and
    a server that picks a price by what it has seen has fixed nothing. What a round releases may differ as long as its
    price does not: each is dominated by the same pair of distributions, whatever was seen before it. A filter takes any
    price.
    """

    def __init__(
        self,
        client: str,
        budget: float | None,
        allowances: Allowances,
        file: LedgerFile,
        dates: Dates | None = None,
        charged: "dict[str, Ledger] | None" = None,
    ) -> None:
        """With its first charge it enters `charged`, where the ledgers of one file are kept."""
        self.client, self.budget, self.dates = client, budget, dates
        self._charged = {} if charged is None else charged
        self.run = ""  # written with every charge: for whom it is
        self.history: History = ()
        self.price: History = ()  # of the first round
        self._first: History = ()  # the first charge, which may come before the first round
        self._attempts = bytearray()  # of each charge its round and the digest of its request: 24 bytes, for ever
        self._allowances, self._file = allowances, file

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
        expects: Sequence[Event] = (),
        sync: bool = True,
    ) -> "Ledger":
        """A file for one client alone; otherwise as `LedgerBook.open`."""
        ledgers = Ledgers(
            path,
            {client: budget},
            data=data,
            config=config,
            delta=delta,
            accountant=accountant,
            expects=expects,
            sync=sync,
        )
        return ledgers.of(client)

    @property
    def ceiling(self) -> float:
        """The ε that it never lets through; infinity without a budget."""
        return math.inf if self.budget is None else self.budget

    @property
    def any_price(self) -> bool:
        """Whether rounds may differ in price: under a filter."""
        return self._allowances.accountant.adaptive

    def afford(self, events: Sequence[Event]) -> bool:
        """Whether a new charge of these events fits the budget. A replay is free: `charge` tells which is one."""
        return not self.short_of(events)

    def short_of(self, events: Sequence[Event]) -> str:
        """Which budget does not allow a new charge of these events, in words; empty if all do."""
        step, date = _history(tuple(events)), self.today()
        if not self._allowance(step).affords(self.history, step):
            return f"epsilon = {self.budget:g}"
        return "" if self.dates is None or self._in_time(step, date) else self.dates.in_words(date)

    def today(self) -> str:
        """The date of a charge that is made now; empty where no dates are kept."""
        return self.dates.today() if self.dates else ""

    def _in_time(self, step: History, date: str) -> bool:
        """Whether it fits what the calendar period of that date may cost; always if there is no such limit."""
        if self.dates is None or self.dates.limit is None:
            return True
        allowance = self._allowances.of(self.dates.limit.epsilon, self._first or step)
        return allowance.affords(self.dates.spent(date), step)

    def takes(self, events: Sequence[Event]) -> bool:
        """Whether this ledger accepts a round of this price. `afford` says whether the budget has room for it."""
        step = _history(tuple(events))
        return self.any_price or step == (self.price or step)

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
        self._file.check_process()
        digest, step = _request_digest(request, events), _history(events)
        known = self._known(round)
        if replayable and digest in known:
            return known.index(digest)
        if self.price and (round == BEFORE or not self.takes(events)):
            raise RunError(
                f"client {self.client!r}: round {round} costs {in_words(step)}, the first cost "
                f"{in_words(self.price)}; {self._allowances.name} is for rounds of one price: keep to it, or begin a "
                f"ledger with the filter (adaptive = True in a method)"
            )
        allowance = self._allowance(step)
        if not allowance.affords(self.history, step):
            spent = allowance.accountant.epsilon(self.history, allowance.delta)
            raise BudgetError(
                f"client {self.client!r}: round {round} does not fit epsilon = {self.budget:g} "
                f"({spent:.4g} spent); the client sits out, or its owner raises the budget"
            )
        date = self.today()
        if self.dates is not None and not self._in_time(step, date):
            limit = self.dates.in_words(date)
            raise BudgetError(f"client {self.client!r}: round {round} does not fit {limit}; the client sits out")
        entry = Entry(self.client, round, len(known), digest.hex(), events, self.run, date)
        self._file.write(entry)
        self.restore(entry)
        return entry.attempt

    def adopt(self, entry: Entry) -> None:
        """Counts a charge that is not in the file: another copy of it has it, or it may have been made.

        No budget is asked: what was spent was spent.
        """
        mine = replace(entry, client=self.client, attempt=len(self._known(entry.round)))
        self._file.write(mine)
        self.restore(mine)

    def most(self, events: Sequence[Event]) -> int:
        """How many charges of these events fit after all that was spent."""
        step = _history(tuple(events))
        allowance = self._allowance(step)
        assert allowance.budget is not None
        return allowance.accountant.max_count(self.history, step, allowance.budget, allowance.delta)

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        """What may be claimed, exact: what was spent, or under a filter the budget, however little of it was used.

        A filter promises its budget for zero-out alone: there is no number for replace-one.
        """
        rule = self._allowances
        return rule.accountant.claim(self.history, self.budget, rule.delta, adjacency)

    def epsilon_so_far(self) -> float:
        """How much of the budget is used up, for display after every round; cheap.

        Under `pld` and `rdp` never below `epsilon`, and at most about half a percent above. Under a filter it is what
        its order counts, usually less than `epsilon`, which is the whole budget: never a number to claim.
        """
        return self._allowance(self._first).used(self.history) if self.history else 0.0

    def entries(self) -> Iterator[Entry]:
        return (entry for entry in self._file.entries() if entry.client == self.client)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def restore(self, entry: Entry) -> None:
        """Counts an entry that is in the file."""
        step = _history(entry.events)
        if not self.history:
            self._charged[self.client] = self
            self._first = step
        self.history = _together(self.history, step)
        if self.dates is not None:
            self.dates.count(entry.date, step)
        if entry.round != BEFORE:
            self.price = self.price or step
        if entry.attempt != len(self._known(entry.round)):
            raise RunError(f"client {self.client!r}: attempt {entry.attempt} of round {entry.round} is out of order")
        self._attempts += _key(entry.round) + bytes.fromhex(entry.request)[:_DIGEST].ljust(_DIGEST, b"\0")

    def _known(self, round: int) -> list[bytes]:
        """The digests of the requests of this round's attempts, in order."""
        charges, key, found = self._attempts, _key(round), []
        at = charges.find(key)
        while at >= 0:
            whole = at % _CHARGE == 0  # and not some bytes of a digest
            if whole:
                found.append(bytes(charges[at + _ROUND : at + _CHARGE]))
            at = charges.find(key, at + (_CHARGE if whole else 1))
        return found

    def _allowance(self, step: History) -> Allowance:
        return self._allowances.of(self.budget, self._first or step)


class Ledgers:
    """The ledgers of many clients in one file; see `LedgerBook.open`. A client that was never charged has none.

    Whoever asks for a client's ledger gets the same one: it is kept from its first charge on, and before that as long
    as somebody holds it.
    """

    def __init__(
        self,
        path: Path | None,
        budgets: Mapping[str, float | None],
        *,
        data: str,
        config: str,
        delta: float,
        accountant: str,
        expects: Sequence[Event],
        sync: bool,
        dates: Dates | None = None,
    ) -> None:
        self._budgets, self._dates = budgets, dates
        self._allowances = Allowances(accountant, delta, budgets.values())  # refuses settings before there is a file
        self.charged: dict[str, Ledger] = {}
        self._asked: WeakValueDictionary[str, Ledger] = WeakValueDictionary()
        self.file = LedgerFile.open(path, sync=sync)
        try:
            header = header_of(budgets, data=data, config=config, delta=delta, accountant=accountant)
            for entry in self.file.recover(header, expects if self._allowances.accountant.adaptive else ()):
                self.of(entry.client).restore(entry)
            self._allowances.expects = history_of(self.file.expects(expects))
        except BaseException:
            self.file.close()
            raise

    def of(self, client: str) -> Ledger:
        found = self.charged.get(client) or self._asked.get(client)
        if found is None:
            if client not in self._budgets:
                raise RunError(f"client {client!r} has no account in this ledger; {nearest(client, self._budgets)}")
            found = Ledger(client, self._budgets[client], self._allowances, self.file, self._dates, self.charged)
            self._asked[client] = found
        return found


def in_words(price: History) -> str:
    return " and ".join(f"{count} × (q {q:g}, σ {sigma:.4g})" for q, sigma, count in price)


def _request_digest(request: str, events: tuple[Event, ...]) -> bytes:
    """Of the request and its price: the same broadcast asked at another price is another request."""
    return hashlib.sha256(f"{_price(events)}\n{request}".encode()).digest()[:_DIGEST]


@lru_cache(maxsize=1024)
def _price(events: tuple[Event, ...]) -> str:
    return repr([(event.q, event.sigmas, event.count) for event in events])


def _key(round: int) -> bytes:
    return round.to_bytes(_ROUND, "little", signed=True)
