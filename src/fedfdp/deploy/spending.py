"""What a node has spent, by run and by date, and what is left: read from its ledger, while the node runs too."""

import datetime
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedfdp.core.errors import RunError
from fedfdp.engines.flower.book import LEDGER
from fedfdp.engines.flower.policy import load_node
from fedfdp.engines.flower.spent import read_node, second_of
from fedfdp.engines.flower.unnoised import ASSUMED, unnoised
from fedfdp.privacy.accounting import find
from fedfdp.privacy.accounting.base import Accountant
from fedfdp.privacy.accounting.events import Event, History, history_of, merge
from fedfdp.privacy.ledger.file import Entry
from fedfdp.privacy.ledger.periods import Dates, Limit, Today, utc_today
from fedfdp.privacy.ledger.reading import read_ledger
from fedfdp.privacy.unnoised import Unnoised

EARLIER = "before dates were kept"


@dataclass
class Part:
    """The charges of one run, or of one day."""

    name: str
    method: str = ""
    rounds: int = 0  # charges: a round that was asked twice with other questions counts twice
    first: str = ""
    last: str = ""
    history: History = ()

    def add(self, entry: Entry) -> None:
        self.rounds += 1
        self.first, self.last = self.first or entry.date, entry.date or self.last
        self.history = merge(self.history, history_of(entry.events))


@dataclass
class Left:
    """A budget: what is used up, and how many more rounds like the latest one fit."""

    what: str
    budget: float
    used: float  # what is used up; a filter claims the whole budget nevertheless
    rounds: int | None  # None: no round was charged yet


@dataclass
class Spending:
    """All that a node's ledger shows."""

    client: str
    path: Path
    delta: float
    accountant: str
    claim: float  # what the node has to claim for all of it
    runs: list[Part] = field(default_factory=list)
    days: list[Part] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)  # the whole budget, then that of the calendar period
    warning: str = ""  # that the ledger in the folder has not all that was spent
    unnoised: Unnoised = field(default_factory=Unnoised)  # rounds that were answered without noise: no ε covers them

    def epsilon(self, part: Part) -> float:
        """What a part would cost alone: these do not add up to the whole, which costs less."""
        by = find(self.accountant)
        return by.epsilon(part.history, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        parts = {"runs": self.runs, "days": self.days}
        shown = {
            name: [
                {k: v for k, v in vars(part).items() if k != "history"} | {"epsilon_alone": self.epsilon(part)}
                for part in found
            ]
            for name, found in parts.items()
        }
        about = {"client": self.client, "ledger": str(self.path), "delta": self.delta, "accountant": self.accountant}
        left = [vars(left) for left in self.left]
        more = {"left": left, "warning": self.warning, "unnoised": self.unnoised.to_dict()}
        return {**about, "epsilon": self.claim, **shown, **more}


def spending(place: Path, today: Today = utc_today) -> Spending:
    """Of a node's folder, or of its node.toml, which also says what a calendar period may cost."""
    limit = second = None
    folder = place
    if place.is_file():
        config = load_node(place)
        folder, limit, second = Path(config.folder), config.policy.limit, config.second
    elif not place.is_dir():
        raise RunError(f"{place}: there is no such folder; give a node's folder or its node.toml")
    return _read(folder, second, limit, today)


def _read(folder: Path, second: Path | None, limit: Limit | None, today: Today) -> Spending:
    runs: dict[str, Part] = {}
    days: dict[str, Part] = {}
    dates, latest, names = Dates(today, limit), list[tuple[Event, ...]](), set[str]()

    def each(entry: Entry) -> None:
        name, _, method = entry.run.partition(" ")
        runs.setdefault(name, Part(name or EARLIER, method)).add(entry)
        days.setdefault(entry.date, Part(entry.date or EARLIER)).add(entry)
        dates.count(entry.date, history_of(entry.events))
        latest[:] = [entry.events]
        names.add(entry.run)

    path = folder / LEDGER
    charges, warning = read_node(folder, second, each)
    if charges.budget is None:
        raise RunError(f"{path} is the ledger of many clients; give a node's folder")
    client = str(charges.header.get("client"))
    history = charges.histories.get(client, ())
    expects = tuple(Event(q, tuple(sigmas), count) for q, sigmas, count in charges.header.get("expects", ()))
    by, step = find(charges.accountant), history_of(latest[0]) if latest else ()

    def left(what: str, budget: float, spent: History) -> Left:
        counts: Accountant = by.expecting(history_of(expects) or step, budget, charges.delta) if step else by
        used = min(counts.upper_bound(spent, charges.delta), budget) if spent else 0.0
        rounds = counts.max_count(spent, step, budget, charges.delta) if step else None
        return Left(what, budget, used, rounds)

    found = [left("all together", charges.budget, history)]
    if limit is not None:
        date = dates.today()
        found.append(left(dates.period(date), limit.epsilon, dates.spent(date)))
        if found[0].rounds is not None and found[1].rounds is not None:
            found[1].rounds = min(found[0].rounds, found[1].rounds)
    claim = by.claim(history, charges.budget, charges.delta)
    parts = list(runs.values()), list(days.values())
    bare = replace(unnoised(folder, second or second_of(folder)), restored=ASSUMED in names)
    return Spending(client, path, charges.delta, charges.accountant, claim, *parts, found, warning, bare)


def date_of(path: Path) -> str:
    """The newest date in a node's ledger; empty if it has none."""
    dates = Dates(lambda: datetime.date.min)
    read_ledger(path, lambda entry: dates.count(entry.date, ()))
    return dates.latest
