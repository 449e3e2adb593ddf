"""`rdp`: the Rényi curve of the joint events, at the order that turns out best. Quick, and looser than `pld`."""

from dataclasses import dataclass

import numpy as np

from fedfdp.privacy.accounting.base import MOST_ROUNDS, Accountant
from fedfdp.privacy.accounting.events import Adjacency, History
from fedfdp.privacy.accounting.renyi import ORDERS, conversion_cost, convert, rdp_epsilon, total


@dataclass(frozen=True)
class RDP(Accountant):
    """For schedules fixed beforehand: the order is chosen afterwards."""

    def price(self, history: History, delta: float, adjacency: Adjacency) -> float:
        value = rdp_epsilon(history, delta, adjacency)
        # replace-one costs no less by definition; rounding could say otherwise where δ ≈ q
        return value if adjacency == "zero-out" else max(value, self.epsilon(history, delta))

    def max_count(self, after: History, step: History, budget: float, delta: float) -> int:
        """In closed form: at each order the total is linear in the steps."""
        room = budget - conversion_cost(ORDERS, delta) - total(after)
        count = max(0, int(np.floor(np.max(room / total(step)))))
        while count and convert(total(after) + count * total(step), delta) > budget:  # the division may round up
            count -= 1
        return min(count, MOST_ROUNDS)
