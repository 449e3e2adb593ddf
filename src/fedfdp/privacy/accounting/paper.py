"""`paper`: the paper's own number, to display and compare. It is no upper bound and never enforces or signs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from dp_accounting.rdp import compute_epsilon

from fedfdp.privacy.accounting.base import MOST_ROUNDS, Accountant
from fedfdp.privacy.accounting.events import Adjacency, Event, History, scale
from fedfdp.privacy.accounting.renyi import REFERENCE_ORDERS, curve
from fedfdp.privacy.accounting.search import largest


@dataclass(frozen=True)
class Paper(Accountant):
    """One Rényi curve for each released value, all added up; with the logarithm that the printed R_model and R_loss
    lack."""

    unsound = "adds up curves that share a batch and so under-counts"
    replace_one = False

    def history(self, events: Iterable[Event]) -> History:
        """Every released value as if it had a batch of its own, which is what under-counts; not merged, not sorted."""
        return tuple((event.q, sigma, event.count) for event in events for sigma in event.sigmas)

    def price(self, history: History, delta: float, adjacency: Adjacency) -> float:
        values = np.zeros(len(REFERENCE_ORDERS))
        for q, sigma, count in history:
            values = values + count * curve(q, sigma)[: len(REFERENCE_ORDERS)]
        return float(compute_epsilon(REFERENCE_ORDERS, values, delta)[0])

    def max_count(self, after: History, step: History, budget: float, delta: float) -> int:
        cost = lambda n: self.epsilon((*after, *scale(step, n)), delta)  # noqa: E731
        return largest(cost, budget, fits=0, most=MOST_ROUNDS)
