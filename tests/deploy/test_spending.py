"""The register of a node: what was spent by run and by date, over many runs, and what is left."""

import datetime
import json

import pytest
import tomli_w

pytest.importorskip("flwr")

from fedfdp.core.errors import RunError
from fedfdp.deploy.spending import EARLIER, spending
from fedfdp.privacy import Event, epsilon
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.periods import Dates

ROUND = [Event(0.1, (2.0,))]


def charge(folder, run, date, rounds, accountant="pld"):
    """So many rounds of a run on a day."""
    folder.mkdir(exist_ok=True)
    dates = Dates(lambda: datetime.date.fromisoformat(date)) if date else None
    about = {"data": "all records of north", "config": "all runs", "delta": 1e-5, "accountant": accountant}
    with LedgerBook.open(folder / "ledger.jsonl", budgets={"north": 3.0}, expects=ROUND, dates=dates, **about) as book:
        ledger = book.ledger("north")
        ledger.run = run
        for number in range(rounds):
            ledger.charge(number, run + date, ROUND, replayable=False)


def node_toml(tmp_path, **policy):
    about = {"name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True}
    file = tmp_path / "node.toml"
    file.write_text(tomli_w.dumps({**about, "data": {"file": "-"}, "policy": {"epsilon": 3.0, **policy}}))
    return file


def test_runs_days_and_what_is_left(tmp_path):
    state = tmp_path / "state"
    charge(state, "", "", 2)
    charge(state, "one fedavg", "2026-05-01", 10)
    charge(state, "two fedfdp", "2026-06-01", 5)
    charge(state, "one fedavg", "2027-01-02", 3)
    found = spending(state)
    shown = [(part.name, part.method, part.rounds, part.first, part.last) for part in found.runs]
    assert shown == [
        (EARLIER, "", 2, "", ""),
        ("one", "fedavg", 13, "2026-05-01", "2027-01-02"),
        ("two", "fedfdp", 5, "2026-06-01", "2026-06-01"),
    ]
    assert [(day.name, day.rounds) for day in found.days] == [
        (EARLIER, 2), ("2026-05-01", 10), ("2026-06-01", 5), ("2027-01-02", 3),
    ]  # fmt: skip
    price = lambda n: epsilon([Event(0.1, (2.0,), n)], 1e-5)  # noqa: E731
    assert found.claim == price(20)
    assert found.epsilon(found.runs[2]) == price(5)
    (whole,) = found.left
    assert price(20) <= whole.used <= price(20) * 1.01
    assert price(20 + whole.rounds) <= 3.0 < price(21 + whole.rounds)


def test_the_period_is_in_the_policy(tmp_path):
    charge(tmp_path / "state", "one fedavg", "2026-05-01", 10)
    charge(tmp_path / "state", "one fedavg", "2027-01-02", 3)
    file = node_toml(tmp_path, epsilon_per_period=1.0)
    whole, year = spending(file, today=lambda: datetime.date(2027, 3, 1)).left
    price = lambda n: epsilon([Event(0.1, (2.0,), n)], 1e-5)  # noqa: E731
    assert (year.what, year.budget) == ("2027", 1.0)
    assert price(3 + year.rounds) <= 1.0 < price(4 + year.rounds)
    assert year.rounds < whole.rounds
    json.dumps(spending(file).to_dict())


def test_what_is_no_node(tmp_path):
    with pytest.raises(RunError, match="there is no such folder"):
        spending(tmp_path / "nowhere")
    with pytest.raises(RunError, match="there is no ledger"):
        spending(tmp_path)
