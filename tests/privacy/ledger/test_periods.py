"""A budget for a calendar period: a charge has to fit it too, and no clock opens a period a second time."""

import datetime
import json

import pytest

from fedfdp.core.errors import BudgetError
from fedfdp.privacy import Event
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.periods import Dates, Limit, period_of

ROUND = [Event(1.0, (10.0,))]  # unsampled, σ = 10


class Clock:
    """Today, as the test says."""

    def __init__(self, today: str) -> None:
        self.today = today

    def __call__(self) -> datetime.date:
        return datetime.date.fromisoformat(self.today)


def opened(path, clock=None, limit=None, budget=10.0, accountant="pld"):
    dates = None if clock is None else Dates(clock, limit)
    return LedgerBook.open(
        path, data="d", config="c", budgets={"north": budget}, delta=1e-5, accountant=accountant,
        expects=ROUND, dates=dates,
    )  # fmt: skip


def spend(book, start=0):
    """Rounds until the ledger refuses one; how many they were."""
    ledger, number = book.ledger("north"), start
    while True:
        try:
            ledger.charge(number, f"{number}", ROUND, replayable=False)
        except BudgetError as error:
            return number - start, str(error)
        number += 1


def most(epsilon):
    """By definition: the most unsampled Gaussian rounds within ε, by the closed form for μ = √n/σ (Balle and Wang)."""
    from scipy.stats import norm

    def delta(n):
        mu = n**0.5 / 10
        first, second = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
        return first - second * 2.718281828459045**epsilon

    n = 1
    while delta(n + 1) <= 1e-5:
        n += 1
    return n


def test_periods_by_name():
    assert [period_of("2026-04-01", every) for every in ("year", "quarter", "month")] == ["2026", "2026-Q2", "2026-04"]
    assert [period_of(f"2026-{month:02}-09", "quarter")[-1] for month in range(1, 13)] == list("111222333444")


def test_each_year_has_its_own_budget_and_the_whole_one_ends_it(tmp_path):
    clock, yearly = Clock("2026-03-01"), most(1.0)
    with opened(tmp_path / "l", clock, Limit(1.0), budget=1.5) as book:
        count, why = spend(book)
        assert count == yearly
        assert "epsilon = 1 in 2026" in why
        assert not book.ledger("north").afford(ROUND)
        clock.today = "2027-01-01"
        assert book.ledger("north").afford(ROUND)
        count, why = spend(book, start=1000)
        assert count == most(1.5) - yearly  # all years together
        assert "epsilon = 1.5" in why


def test_a_clock_that_is_set_back_opens_nothing(tmp_path):
    clock = Clock("2026-12-31")
    with opened(tmp_path / "l", clock, Limit(1.0)) as book:
        spend(book)
        clock.today = "2025-06-01"
        assert spend(book, start=500)[0] == 0
    with opened(tmp_path / "l", clock, Limit(1.0)) as book:  # nor after a restart
        assert spend(book, start=500)[0] == 0
        assert [entry.date for entry in book.entries()][-1] == "2026-12-31"


def test_charges_without_a_date_count_now_and_then_where_the_next_dated_one_is(tmp_path):
    with opened(tmp_path / "l") as book:  # as an earlier version wrote them
        book.ledger("north").charge(0, "a", ROUND, replayable=False)
        assert "date" not in json.loads((tmp_path / "l").read_text().splitlines()[1])
    clock, yearly = Clock("2030-05-05"), most(1.0)
    with opened(tmp_path / "l", clock, Limit(1.0)) as book:
        assert spend(book, start=1)[0] == yearly - 1
        clock.today = "2031-01-01"
        assert spend(book, start=1000)[0] == yearly


def test_a_filter_has_a_filter_for_each_period(tmp_path):
    clock = Clock("2026-03-01")
    with opened(tmp_path / "l", clock, Limit(1.0), accountant="filter") as book:
        first, _ = spend(book)
        clock.today = "2027-03-01"
        second, _ = spend(book, start=1000)
        assert first == second > 0
        assert book.epsilon() == 10.0  # it claims the whole budget, as ever


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_is_a_budget(epsilon):
    with pytest.raises(Exception, match="a budget above 0"):
        Limit(epsilon)
