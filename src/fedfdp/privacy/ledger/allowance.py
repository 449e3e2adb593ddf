"""Whether a budget allows one more round: decided exactly, remembered, and shared by all who spent the same."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol

from fedfdp.core.errors import SettingError, nearest
from fedfdp.privacy.accounting.accountant import check_valid, history_epsilon, history_max_count, upper_bound
from fedfdp.privacy.accounting.events import Event, History, check_delta, check_epsilon, contains, merge, scale
from fedfdp.privacy.accounting.filter import RDPFilter

Enforcer = Literal["pld", "rdp", "filter"]

_MOST_REMEMBERED = 100_000
_together = lru_cache(maxsize=1024)(merge)


def check_enforcer(accountant: str) -> Enforcer:
    """`pld` and `rdp` are for schedules fixed beforehand; `filter` for those chosen during the run."""
    if accountant == "filter":
        return "filter"
    if accountant not in ("pld", "rdp", "paper"):
        raise SettingError("accountant", accountant, nearest(accountant, ["pld", "rdp", "filter"]))
    return "pld" if check_valid(accountant) == "pld" else "rdp"


class Limit(Protocol):
    """What a ledger asks. `budget` None: everything is counted and nothing refused."""

    def affords(self, spent: History, step: History) -> bool: ...
    def epsilon(self, spent: History) -> float: ...
    def upper_bound(self, spent: History) -> float: ...


class FixedSchedule:
    """A budget under `pld` or `rdp`."""

    def __init__(self, budget: float | None, delta: float, accountant: Literal["pld", "rdp"]) -> None:
        check_delta(delta)
        if budget is not None:
            check_epsilon(budget)
        self.budget, self.delta, self.accountant = budget, delta, accountant
        self._remembered: dict[History, bool] = {}
        self._affordable: list[History] = []  # the farthest that was found within the budget

    def affords(self, spent: History, step: History) -> bool:
        if self.budget is None:
            return True
        together = _together(spent, step)
        if together not in self._remembered:
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[together] = self._decide(spent, step, together, self.budget)
        return self._remembered[together]

    def _decide(self, spent: History, step: History, together: History, budget: float) -> bool:
        """Exact, without a new distribution each round: how far steps like this one go is found once."""
        if history_epsilon(together, self.delta, "rdp") <= budget:
            return True
        if self.accountant == "rdp":
            return False
        if any(contains(known, together) for known in self._affordable):
            return True
        steps = history_max_count(spent, step, budget, self.delta, self.accountant)
        if steps:
            self._affordable.append(merge(spent, scale(step, steps)))
        return steps > 0

    def epsilon(self, spent: History) -> float:
        return history_epsilon(spent, self.delta, self.accountant)

    def upper_bound(self, spent: History) -> float:
        """Cheap enough for every round; what was afforded is within the budget, so the bound is too."""
        bound = upper_bound(spent, self.delta, self.accountant)
        return bound if self.budget is None else min(bound, self.budget)


class AdaptiveSchedule:
    """A budget under the Rényi filter; its order is the best for the first round, which no release has influenced."""

    def __init__(self, budget: float, delta: float, first: Iterable[Event]) -> None:
        self._filter = RDPFilter.expecting(first, budget, delta)

    def affords(self, spent: History, step: History) -> bool:
        return self._filter.affords_history(merge(spent, step))

    def epsilon(self, spent: History) -> float:
        return self._filter.epsilon_of(spent)

    def upper_bound(self, spent: History) -> float:
        return self.epsilon(spent)
