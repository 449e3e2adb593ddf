"""What an accountant is: it says which ε a history of releases costs. Each has its file, and a name in `registry.py`.

Nothing here knows a particular accountant, and no accountant ever reads data.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar

from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting.events import Adjacency, Event, History, history_of, merge, scale
from fedfdp.privacy.accounting.search import largest

MOST_ROUNDS = 10**12  # beyond this a budget is as good as unlimited


class Accountant(ABC):
    """How much ε a history of releases costs at δ.

    Your own is a class with `price`, named as `accountant = "package.module:Class"` and made without arguments. Its ε
    must be an upper bound for every history, rise with every count, and not fall when δ falls. That is its author's
    claim: nothing here can prove it, and the privacy statement names the class and says so.
    """

    unsound: ClassVar[str] = ""  # why its ε is no upper bound: it may only display and compare. Empty: it may enforce
    adaptive: ClassVar[bool] = False  # whether its bound holds if a round's price reacts to releases: a filter
    replace_one: ClassVar[bool] = True  # whether it has a number for replace-one too

    @abstractmethod
    def price(self, history: History, delta: float, adjacency: Adjacency) -> float:
        """ε of a history at δ, computed anew; infinity where it knows no bound. Callers ask `epsilon`.

        Args:
            history: (q, effective σ, how often) of every kind of batch, sorted; never empty.
            delta: above 0 and below 1.
            adjacency: "replace-one" only if `replace_one` is set.
        """

    def epsilon(self, history: History, delta: float, adjacency: Adjacency = "zero-out") -> float:
        """ε of a history at δ, for a schedule fixed beforehand. Equal questions are computed once, whoever asks."""
        if not history:
            return 0.0
        if adjacency == "replace-one" and not self.replace_one:
            return math.inf
        return _priced(self, history, delta, adjacency)

    def upper_bound(self, history: History, delta: float) -> float:
        """To show after every round: never below `epsilon`, a little above it at most, and cheap."""
        return self.epsilon(history, delta)

    def max_count(self, after: History, step: History, budget: float, delta: float) -> int:
        """The most steps after a history whose ε is within the budget. May be 0."""
        cost = lambda n: self.epsilon(merge(after, scale(step, n)), delta)  # noqa: E731
        return largest(cost, budget, fits=0, most=MOST_ROUNDS)

    def claim(self, history: History, budget: float | None, delta: float, adjacency: Adjacency = "zero-out") -> float:
        """What a ledger with this budget may claim: what it spent; a filter its whole budget, for zero-out alone."""
        if not history or not self.adaptive:
            return self.epsilon(history, delta, adjacency)
        return budget if budget is not None and adjacency == "zero-out" else math.inf

    def history(self, events: Iterable[Event]) -> History:
        """The events as they are counted: all that one batch releases is one of them."""
        return history_of(events)

    def expecting(self, round: History, budget: float | None, delta: float) -> "Accountant":
        """The accountant of a ledger whose rounds will probably be like this one, which is public beforehand."""
        return self

    @property
    def coarser(self) -> tuple[tuple["Accountant", float], ...]:
        """Quicker accountants whose ε is never below this one's, quickest first: a search goes through them.

        Each with the relative distance to the edge of a budget at which the next one should go on.
        """
        return ()

    @property
    def quickest(self) -> "Accountant":
        """What fits by this one fits by all of `coarser` and by the accountant itself."""
        return self.coarser[0][0] if self.coarser else self


@lru_cache(maxsize=65536)
def _priced(accountant: Accountant, history: History, delta: float, adjacency: Adjacency) -> float:
    value = accountant.price(history, delta, adjacency)
    if not value >= 0:  # NaN is refused too
        raise SettingError("accountant", type(accountant).__name__, f"gives ε = {value}", "an ε is at least 0")
    return value
