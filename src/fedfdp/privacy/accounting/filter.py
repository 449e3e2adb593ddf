"""`filter`: a Rényi filter, for schedules chosen while the run goes on (σ, q or steps that react to releases).

The orders must not react too, or the guarantee is lost: they are fixed before the first release.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedfdp.core.errors import require
from fedfdp.privacy.accounting.base import Accountant
from fedfdp.privacy.accounting.events import Adjacency, History
from fedfdp.privacy.accounting.renyi import ORDERS, conversion_cost, total


@dataclass(frozen=True)
class RenyiFilter(Accountant):
    """Go on while some order's Rényi total stays within that order's share of the budget; refuse otherwise.

    With one order this is the fully adaptive Rényi filter (Feldman and Zrnic 2021): what is released is (α, budget)-RDP
    whatever chose the events. Which of m orders survives depends on the releases, so with m of them each gets δ/m: the
    union bound over the surviving order. `epsilon` is how much of a budget a history uses up; the claim of a ledger is
    the whole budget, since where it stopped may depend on the releases.
    """

    orders: tuple[int, ...] = ORDERS  # all of them, as long as nothing is known about the rounds to come

    adaptive = True
    replace_one = False

    def __post_init__(self) -> None:
        fits = bool(self.orders) and set(self.orders) <= set(ORDERS)
        require(fits, "orders", self.orders, f"one or more of {ORDERS[0]} to {ORDERS[-1]}", "see renyi.ORDERS")

    def expecting(self, round: History, budget: float | None, delta: float) -> "RenyiFilter":
        """The filter of the one order that allows the most of such rounds; rounds of other prices may come too."""
        return self if budget is None else RenyiFilter((_best_order(round, budget, delta),))

    def price(self, history: History, delta: float, adjacency: Adjacency) -> float:
        at = [ORDERS.index(order) for order in self.orders]
        cost = conversion_cost(self.orders, delta / len(self.orders))
        return max(0.0, float(np.min(total(history)[at] + cost)))


@lru_cache(maxsize=1024)
def _best_order(round: History, budget: float, delta: float) -> int:
    room = budget - conversion_cost(ORDERS, delta)
    return ORDERS[int(np.argmax(room / total(round)))]
