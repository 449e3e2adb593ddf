"""A budget for schedules that are chosen while the run goes on (σ, q or the number of steps reacting to releases).

The order must not react too, or the guarantee is lost: each filter decides by orders fixed before the first release.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting.events import Event, History, check_delta, check_epsilon, history_of, merge
from fedfdp.privacy.accounting.rdp import ORDERS, conversion_cost, total


class RDPFilter:
    """Go on while some order's Rényi total stays within that order's share; stop for good otherwise.

    With one order this is the fully adaptive Rényi filter (Feldman and Zrnic 2021): what is released is (α, budget)-RDP
    whatever chose the events. Which of m orders survives depends on the releases, so with m of them each gets δ/m: the
    union bound over the surviving order.
    """

    def __init__(self, epsilon: float, delta: float, *, orders: Sequence[int]) -> None:
        check_epsilon(epsilon)
        check_delta(delta)
        if not orders or not set(orders) <= set(ORDERS):
            raise SettingError("orders", tuple(orders), f"one or more of {ORDERS[0]} to {ORDERS[-1]}", "see rdp.ORDERS")
        self.epsilon, self.delta, self.orders = epsilon, delta, tuple(orders)
        self._cost = conversion_cost(self.orders, delta / len(self.orders))
        self._columns = [ORDERS.index(order) for order in self.orders]
        self._history: History = ()

    @classmethod
    def expecting(cls, events: Iterable[Event], epsilon: float, delta: float) -> "RDPFilter":
        """The filter of the one order that allows the most of a round known beforehand; other rounds may come too."""
        check_epsilon(epsilon)
        check_delta(delta)
        room = epsilon - conversion_cost(ORDERS, delta)
        best = int(np.argmax(room / total(history_of(events))))
        return cls(epsilon, delta, orders=(ORDERS[best],))

    def affords(self, events: Iterable[Event]) -> bool:
        return self.affords_history(merge(self._history, history_of(events)))

    def affords_history(self, history: History) -> bool:
        return self.epsilon_of(history) <= self.epsilon

    def add(self, events: Iterable[Event]) -> bool:
        """Counts the events if they fit; False, and nothing counted, if they do not."""
        history = merge(self._history, history_of(events))
        if not self.affords_history(history):
            return False
        self._history = history
        return True

    def epsilon_of(self, history: History) -> float:
        """How much of the budget a history takes. While a run goes on, the guarantee is the budget, not this."""
        return max(0.0, float(np.min(total(history)[self._columns] + self._cost))) if history else 0.0
