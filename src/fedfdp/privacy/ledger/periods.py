"""A second budget that begins anew with every calendar year, quarter or month. Dates only ever go forward.

The whole budget of a ledger is not touched by it: a charge has to fit both.
"""

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedfdp.core.errors import require
from fedfdp.privacy.accounting.events import History, merge

Every = Literal["year", "quarter", "month"]
Today = Callable[[], datetime.date]


def utc_today() -> datetime.date:
    """Today in UTC: the same day at every node, and no daylight saving."""
    return datetime.datetime.now(datetime.UTC).date()


@dataclass(frozen=True)
class Limit:
    """The most ε within one calendar period, in UTC."""

    epsilon: float
    every: Every = "year"

    def __post_init__(self) -> None:
        require(0 < self.epsilon < math.inf, "limit.epsilon", self.epsilon, "a budget above 0")


def period_of(date: str, every: Every) -> str:
    """The name of the period of an ISO date: 2026, 2026-Q4 or 2026-11."""
    year, month, _ = date.split("-")
    return {"year": year, "quarter": f"{year}-Q{(int(month) + 2) // 3}", "month": f"{year}-{month}"}[every]


class Dates:
    """When a ledger was charged, and what falls into the period that goes on.

    A charge is never dated before the one before it, so a clock that is set back opens no period a second time. Charges
    without a date (an earlier version wrote none) were made before the next dated one: they count in its period, or in
    the present one if none follows. That may be too much, and is never too little.
    """

    def __init__(self, today: Today, limit: Limit | None = None) -> None:
        self._today, self.limit = today, limit
        self.latest = ""
        self._period = ""  # of the newest dated charge, …
        self._spent: History = ()  # … and what counts in it
        self._undated: History = ()

    def today(self) -> str:
        """The date of a charge that is made now."""
        return max(self._today().isoformat(), self.latest)

    def period(self, date: str) -> str:
        """The name of the period that the date is in."""
        return period_of(date, self.limit.every if self.limit else "year")

    def spent(self, date: str) -> History:
        """What counts in the period of that date, which is `today` or later."""
        return merge(self._spent if self._period == self.period(date) else (), self._undated)

    def in_words(self, date: str) -> str:
        """The limit, with the period that it is for."""
        return f"epsilon = {self.limit.epsilon:g} in {self.period(date)}" if self.limit else ""

    def count(self, date: str, step: History) -> None:
        """Counts a charge of the ledger, in its order."""
        if not date:
            self._undated = merge(self._undated, step)
            return
        self.latest = max(date, self.latest)
        period = self.period(self.latest)
        before = self._spent if period == self._period else ()
        self._period, self._spent, self._undated = period, merge(before, self._undated, step), ()
