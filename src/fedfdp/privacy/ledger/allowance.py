"""Decides exactly whether a budget allows one more round; the answer is kept for all clients that spent the same."""

from collections.abc import Collection
from functools import lru_cache

from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting.base import Accountant
from fedfdp.privacy.accounting.events import History, check_delta, check_epsilon, contains, merge, scale
from fedfdp.privacy.accounting.registry import find

_MOST_REMEMBERED = 100_000
_together = lru_cache(maxsize=1024)(merge)


class Allowance:
    """One budget under one accountant. A budget of None: everything is counted and nothing refused."""

    def __init__(self, accountant: Accountant, budget: float | None, delta: float) -> None:
        self.accountant, self.budget, self.delta = accountant, budget, delta
        self._remembered: dict[History, bool] = {}
        self._affordable: list[History] = []  # the longest histories that were found within the budget

    def affords(self, spent: History, step: History) -> bool:
        """Whether the step fits after what was spent."""
        if self.budget is None:
            return True
        together = _together(spent, step)
        if together not in self._remembered:
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[together] = self._decide(spent, step, together, self.budget)
        return self._remembered[together]

    def _decide(self, spent: History, step: History, together: History, budget: float) -> bool:
        """Exact. Not every round is priced anew: how many steps like this one fit is computed once and kept."""
        quickest = self.accountant.quickest
        if quickest.epsilon(together, self.delta) <= budget:
            return True
        if quickest is self.accountant:
            return False
        if any(contains(known, together) for known in self._affordable):
            return True
        steps = self.accountant.max_count(spent, step, budget, self.delta)
        if steps:
            self._affordable.append(merge(spent, scale(step, steps)))
        return steps > 0

    def used(self, spent: History) -> float:
        """How much of the budget is used: an upper bound that is cheap to compute, cut to the budget."""
        bound = self.accountant.upper_bound(spent, self.delta)
        return bound if self.budget is None else min(bound, self.budget)


class Allowances:
    """What the ledgers of one file have in common: an accountant, δ, and one allowance for all with the same budget."""

    def __init__(self, accountant: str, delta: float, budgets: Collection[float | None]) -> None:
        self.name, self.accountant, self.delta = accountant, find(accountant, enforces=True), delta
        self.expects: History = ()  # what a round will probably cost, known before the first release
        check_delta(delta)
        for budget in set(budgets):
            if budget is not None:
                check_epsilon(budget)
            elif self.accountant.adaptive:
                raise SettingError("budget", None, "a filter stops at a budget", "set epsilon, or use pld or rdp")
        self._known: dict[tuple[Accountant, float | None], Allowance] = {}

    def of(self, budget: float | None, first: History) -> Allowance:
        """The allowance of a client. `first`, its first charge, fixes a filter's order where nothing is expected."""
        accountant = self.accountant.expecting(self.expects or first, budget, self.delta)
        key = accountant, budget
        if key not in self._known:
            self._known[key] = Allowance(accountant, budget, self.delta)
        return self._known[key]
