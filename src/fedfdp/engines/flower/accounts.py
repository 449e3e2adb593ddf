"""What the nodes say they have spent: their ledgers' histories, which hold no data. The ledgers stay where they are."""

import json
import math
from dataclasses import dataclass, field

from fedfdp.errors import DataError
from fedfdp.privacy.accounting.accountant import Method, history_epsilon, upper_bound
from fedfdp.privacy.accounting.events import Adjacency, History, contains, merge


@dataclass(frozen=True)
class Account:
    """One node's spending, priced at the run's δ."""

    history: History
    budget: float | None
    delta: float
    method: Method

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        return history_epsilon(self.history, self.delta, self.method, adjacency) if self.history else 0.0


@dataclass
class Accounts:
    """The last word of every node; what a summary and a privacy statement are made of."""

    delta: float
    method: Method
    budgets: dict[str, float | None]
    histories: dict[str, History] = field(default_factory=dict)

    def report(self, client: str, spent: str) -> None:
        """A ledger only ever grows: one that shows less than before was lost, and its node is not to be used."""
        history = parse_history(spent)
        if not contains(history, self.histories.get(client, ())):
            raise DataError("its ledger shows less than it did before")
        self.histories[client] = history

    def charged(self) -> int:
        return sum(count for history in self.histories.values() for _, _, count in history)

    def ledger(self, client: str) -> Account:
        return Account(self.histories.get(client, ()), self.budgets.get(client), self.delta, self.method)

    def epsilon(self) -> float:
        different = set(self.histories.values()) - {()}
        return max((history_epsilon(h, self.delta, self.method, "zero-out") for h in different), default=0.0)

    def epsilon_upper_bound(self) -> float:
        different = set(self.histories.values()) - {()}
        return max((upper_bound(h, self.delta, self.method) for h in different), default=0.0)

    def sync(self) -> None:
        """Nothing to do: every node's ledger was durable before it answered."""


def parse_history(text: str) -> History:
    """A history as a node reported it; what is none is a DataError."""
    try:
        entries = json.loads(text)
        if not isinstance(entries, list) or len(entries) > 10_000:
            raise ValueError("no list")
        found = [(float(q), float(sigma), int(count)) for q, sigma, count in entries]
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise DataError(f"a history that is none: {error}") from None
    for q, sigma, count in found:
        if not (0 < q <= 1 and 1e-100 < sigma < 1e100 and math.isfinite(count) and 0 < count < 10**9):
            raise DataError(f"a history with an impossible entry: q = {q}, sigma = {sigma}, {count} times")
    return merge(found)
