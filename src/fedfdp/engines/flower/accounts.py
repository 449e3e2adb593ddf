"""What the nodes say they have spent: their ledgers' histories, which hold no data. The ledgers stay where they are.

A node is never said to have spent less than its own ledger claims. What it was asked and did not answer may be in that
ledger, and counts until the node has said what is.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import DataError, SettingError
from fedfdp.privacy.accounting import ACCOUNTANTS, Accountant, find
from fedfdp.privacy.accounting.events import Adjacency, History, contains, merge
from fedfdp.privacy.unnoised import Unnoised, told_in


@dataclass(frozen=True)
class Spent:
    """A node's ledger as it was reported: its history, and by which rule it claims an ε for it."""

    history: History
    accountant: str
    budget: float
    delta: float

    @property
    def by(self) -> Accountant:
        return find(self.accountant, enforces=True)

    @property
    def rule(self) -> tuple[str, float, float]:
        return self.accountant, self.budget, self.delta

    def claim(self, adjacency: Adjacency = "zero-out") -> float:
        """What that ledger claims at its own δ: a filter its whole budget, however little of it was used."""
        return self.by.claim(self.history, self.budget, self.delta, adjacency)

    def to_dict(self) -> dict[str, object]:
        return {
            "history": [list(entry) for entry in self.history],
            "accountant": self.accountant,
            "budget": self.budget,
            "delta": self.delta,
        }


@dataclass(frozen=True)
class Account:
    """One node's spending: priced by the run's own settings, and as its ledger claims. What is said is the larger."""

    spent: Spent | None
    budget: float | None
    delta: float
    accountant: str

    @property
    def ceiling(self) -> float:
        """The ε that its ledger never lets through at the run's δ; infinity where it promises none at that δ."""
        within = self.spent is not None and self.spent.delta <= self.delta
        return self.budget if within and self.budget is not None else math.inf

    def price(self, adjacency: Adjacency = "zero-out") -> float:
        if self.spent is None:
            return 0.0
        return find(self.accountant, plans=True).epsilon(self.spent.history, self.delta, adjacency)

    def claim(self, adjacency: Adjacency = "zero-out") -> float:
        return 0.0 if self.spent is None else self.spent.claim(adjacency)

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        return max(self.price(adjacency), self.claim(adjacency))

    @property
    def difference(self) -> str:
        """If price and claim differ: both, why they differ, and which is stated; otherwise empty."""
        price, claim = self.price(), self.claim()
        if self.spent is None or math.isclose(price, claim, rel_tol=1e-9):
            return ""
        released = f"what was released costs ε = {price:.4f} at δ = {self.delta:g} by {self.accountant}"
        if self.spent.by.adaptive:
            claimed = f"the node's ledger is a filter, which claims its whole budget, ε = {claim:.4f}"
        else:
            rule = f"at δ = {self.spent.delta:g} by {self.spent.accountant}"
            claimed = f"the node's own ledger claims ε = {claim:.4f} {rule}"
        return f"{released}; {claimed}; the larger is stated"


def read_register(path: Path) -> dict[str, int]:
    """The most charges that each node showed; a SettingError if that cannot be read, or could not be written later."""
    setting = "flower.register"
    if not path.parent.is_dir():
        raise SettingError(setting, str(path), f"there is no folder {path.parent}", "make it, or give another place")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        fix = "give an absolute path in a folder of this user, such as /var/lib/fedfdp"
        raise SettingError(setting, str(path), f"{path.parent} cannot be written", fix)
    try:
        return {str(name): int(count) for name, count in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingError(setting, str(path), error.strerror or str(error), "give another place") from None
    except (ValueError, AttributeError, TypeError):
        raise SettingError(setting, str(path), "is no list of nodes", "put back a copy, or remove it") from None


@dataclass
class Accounts:
    """The latest ledger report of every node, from which summary and privacy statement are made."""

    delta: float
    accountant: str  # the run's own
    budgets: dict[str, float | None]
    adaptive: bool = False  # the method chooses by what was released: only a filter's claim holds then
    spent: dict[str, Spent] = field(default_factory=dict)
    register: Path | None = None  # a file in which the most charges that each node showed are kept, over all runs
    known: dict[str, int] = field(default_factory=dict)  # what it holds
    waiting: Path | None = None  # a file with what was asked and not answered yet, for a run that is resumed
    unanswered: dict[str, History] = field(default_factory=dict)  # what it holds
    unnoised: dict[str, Unnoised] = field(default_factory=dict)  # what nodes said of rounds without noise

    def __post_init__(self) -> None:
        if self.waiting is not None and self.waiting.exists():
            asked = json.loads(self.waiting.read_text())
            self.unanswered = {client: _history(history) for client, history in asked.items()}
        if self.register is not None:
            self.known = read_register(self.register)

    def seen(self, client: str) -> int:
        """The most charges that this coordinator has seen in the node's ledger."""
        return self.known.get(client, 0)

    def asked(self, clients: Iterable[str], price: History) -> None:
        """Notes what a question may cost these nodes, before it is sent."""
        for client in clients:
            self.unanswered[client] = merge(self.unanswered.get(client, ()), price)
        self._keep_waiting()

    def with_more(self, clients: Iterable[str], more: History) -> "Accounts":
        """A copy of what is known, as if these nodes had been asked this too. It writes no file."""
        made = replace(self, register=None, waiting=None, unanswered=dict(self.unanswered))
        made.asked(clients, more)
        return made

    def report(self, client: str, said: str, *, past: bool = False) -> None:
        """Notes a node's report. A ledger only grows: one that shows less than before was lost, and raises.

        `past`: it was made before the run was resumed, so the register may know of later ones.
        """
        if (told := told_in(said)) is not None:  # first: it holds whatever is wrong with the ledger
            known = self.unnoised.get(client, Unnoised())
            more = max(told, known, key=lambda one: one.rounds)  # never less than it said before
            self.unnoised[client] = replace(more, restored=told.restored or known.restored)
        now, before = parse_spent(said, self.accountant), self.spent.get(client)
        if before is not None and before.rule != now.rule:
            raise DataError("its ledger is another one than before")
        if before is not None and not contains(now.history, before.history):
            raise DataError("its ledger shows less than it did before")
        if self.adaptive and not now.by.adaptive:
            raise DataError(f"its ledger counts by {now.accountant}, and this method takes a filter")
        if now.by.adaptive and now.delta > self.delta:
            raise DataError(f"its ledger is a filter for delta = {now.delta:g}, the run's is {self.delta:g}")
        count, seen = sum(count for *_, count in now.history), self.seen(client)
        if count < seen and not past:
            raise DataError(f"its ledger shows {count} charges, {seen} were seen: an older copy of it?")
        self.spent[client], self.known[client] = now, max(count, seen)
        if not past:  # it answers one question after the other: all that it was asked before is in it
            self.unanswered.pop(client, None)

    def keep(self) -> None:
        """Writes the register, before anything is done with the answers."""
        if self.register is not None:
            files.write_whole(self.register, json.dumps(self.known, indent=1).encode())
        self._keep_waiting()

    def _keep_waiting(self) -> None:
        if self.waiting is not None:
            files.write_whole(self.waiting, json.dumps(self.unanswered).encode())

    def charged(self) -> int:
        return sum(count for spent in self.spent.values() for _, _, count in spent.history)

    def ledger(self, client: str) -> Account:
        """The budget is the one that the node enforces, as far as it is known: it may be less than the run's."""
        budget = self.spent[client].budget if client in self.spent else self.budgets.get(client)
        return Account(self._counted().get(client), budget, self.delta, self.accountant)

    def epsilon(self) -> float:
        return max((account.epsilon() for account in self._different()), default=0.0)

    def epsilon_so_far(self) -> float:
        """The cost of what was released by the run's own δ and accountant, for display after every round; cheap.

        Where ledgers claim more than that, as filters do, it is less than `epsilon`: never a number to claim.
        """
        by = find(self.accountant, plans=True)
        known = {spent.history for spent in self._counted().values()}
        return max((by.upper_bound(history, self.delta) for history in known), default=0.0)

    def used(self) -> dict[str, float]:
        """The same of each node."""
        by = find(self.accountant, plans=True)
        counted = self._counted()
        bounds = {spent.history: 0.0 for spent in counted.values()}
        bounds = {history: by.upper_bound(history, self.delta) for history in bounds}
        return {client: bounds[spent.history] for client, spent in counted.items()}

    def differences(self) -> list[str]:
        """One line for each way in which ledgers claim another ε than the run's settings give, with the nodes.

        And one with the nodes that did not answer.
        """
        lines: dict[str, list[str]] = {}
        for client in self.spent:
            if difference := self.ledger(client).difference:
                lines.setdefault(difference, []).append(client)
        if self.unanswered:
            lines["was asked and did not answer: what that would have cost counts as spent"] = list(self.unanswered)
        return [f"{', '.join(clients)}: {difference}" for difference, clients in lines.items()]

    def without_noise(self) -> dict[str, str]:
        """The nodes that have answered rounds without noise, in any run of any coordinator, and how many."""
        return {client: unnoised.in_words() for client, unnoised in self.unnoised.items() if unnoised}

    def unsaid(self) -> list[str]:
        """One line with the nodes whose version does not say that, if there are any."""
        silent = ", ".join(client for client in self.spent if client not in self.unnoised)
        why = "its version of fedfdp does not say whether it has answered rounds without noise; upgrade fedfdp there"
        return [f"{silent}: {why}"] if silent else []

    def to_dict(self) -> Mapping[str, Mapping[str, object]]:
        told = {client: {"unnoised": unnoised.told()} for client, unnoised in self.unnoised.items()}
        return {client: {**spent.to_dict(), **told.get(client, {})} for client, spent in self.spent.items()}

    def sync(self) -> None:
        """Nothing to do: every node's ledger was durable before it answered."""

    def _different(self) -> list[Account]:
        return [Account(spent, None, self.delta, self.accountant) for spent in set(self._counted().values())]

    def _counted(self) -> dict[str, Spent]:
        """What each node reported, and what it was asked since then."""
        counted = dict(self.spent)
        for client, more in self.unanswered.items():
            rule = self.accountant, self.budgets.get(client) or math.inf, self.delta
            known = self.spent.get(client, Spent((), *rule))
            counted[client] = replace(known, history=merge(known.history, more))
        return counted


def parse_spent(text: str, own: str) -> Spent:
    """A ledger as a node reported it; a malformed report is a DataError.

    No class is imported because a node names it: `own`, the run's accountant, is the only one that may be outside this
    library.
    """
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or set(said) - {"unnoised"} != {"history", "accountant", "budget", "delta"}:
            raise ValueError("not history, accountant, budget and delta")
        history, accountant = _history(said["history"]), said["accountant"]
        budget, delta = float(said["budget"]), float(said["delta"])
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise DataError(f"malformed ledger report: {error}") from None
    known = [*(name for name, by in ACCOUNTANTS.items() if not by.unsound), own]
    if accountant not in known or not (0 < budget < math.inf and 0 < delta < 1):
        raise DataError(f"a ledger with an impossible rule: {accountant!r:.40}, {budget}, {delta}")
    return Spent(history, accountant, budget, delta)


def _history(entries: object) -> History:
    if not isinstance(entries, list) or len(entries) > 10_000:
        raise ValueError("no list")
    found = [(float(q), float(sigma), int(count)) for q, sigma, count in entries]
    for q, sigma, count in found:
        if not (0 < q <= 1 and 1e-100 < sigma < 1e100 and math.isfinite(count) and 0 < count < 10**9):
            raise ValueError(f"an impossible entry: q = {q}, sigma = {sigma}, {count} times")
    return merge(found)
