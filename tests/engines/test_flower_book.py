"""A node's ledger knows for whom it was spent, and is nobody else's."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfdp.core.errors import SettingError
from fedfdp.engines.flower.book import LEDGER, open_book
from fedfdp.engines.flower.policy import NodeConfig, load_node
from fedfdp.privacy import Event
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.runs.register import register


@pytest.fixture
def path(tmp_path):
    (tmp_path / "node.toml").write_text(
        'name="north"\nserver="127.0.0.1:9"\nfolder="state"\nplain_text=true\npolicy.epsilon=3.0\n'
        '[data]\nfile="x.csv"\nlabel="y"\nclasses=2\nunit="patient"\n'
    )
    (tmp_path / "state").mkdir()
    return tmp_path / "node.toml"


def spend(config: NodeConfig) -> float:
    with open_book(config, lambda: datetime.date(2026, 1, 1)) as book:
        book.ledger("north").charge(0, "r", [Event(0.1, (1.0,))], replayable=False)
        return book.ledger("north").epsilon()


def test_a_ledger_of_persons_is_none_of_records(path):
    config = load_node(path)
    spend(config)
    (found,) = register([path])
    assert found.unit.one == "patient"
    for other in ("record", "ward"):
        with pytest.raises(SettingError, match=rf"data.unit = '{other}': .* was begun for each patient; put it back"):
            spend(by(config, other))
    with open_book(config, datetime.date.today) as book:
        assert book.charged() == 1


def by(config: NodeConfig, unit: str) -> NodeConfig:
    return replace(config, data=replace(config.data, unit=unit))


@pytest.mark.parametrize("older", [False, True])
def test_what_was_spent_for_records_protects_no_person(path, older):
    """Also where an older version wrote the ledger, which did not say for whom."""
    config = load_node(path)
    if older:
        with LedgerBook.open(Path(config.folder) / LEDGER, data="all records of north", config="all runs",
                             budgets={"north": 3.0}, delta=1e-5) as book:  # fmt: skip
            book.ledger("north").charge(0, "r", [Event(0.1, (1.0,))], replayable=False)
    else:
        spend(by(config, "record"))
    with pytest.raises(SettingError, match=r"data.unit = 'patient': .* was begun for each record"):
        spend(config)
    (found,) = register([path])
    assert found.unit.one == "record"
