"""The register adds up what ledgers show: by hand, over runs that share records, and over nodes."""

import json
import math

import pytest
import torch

import fedfdp
from fedfdp.core.errors import RunError
from fedfdp.privacy import Event, epsilon
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.reading import read_ledger
from fedfdp.report.officer import officers_page
from fedfdp.runs.register import ANYONE, odds, register

TABLE = """
name = "visits"
rounds = {rounds}
seed = {seed}
[data]
source = "{source}"
holder = "site"
label = "ill"
{unit}
classes = ["no", "yes"]
[data.columns]
age = [0, 100]
[model]
name = "linear"
[algorithm]
name = "fedavg"
lr = 1.0
{privacy}
"""
PRIVACY = "[privacy]\nepsilon = 9.0\nsigma = 2.0\nq = 0.2\nclip = 0.5\n"


@pytest.fixture
def run(tmp_path):
    """Runs a config on one table, whose rows are of countries, into the folder of that name."""
    table = tmp_path / "visits.csv"
    rows = [f"{'en'[i % 2]},c{i // 3},{i % 100},{'yes' if i % 100 > 50 else 'no'}" for i in range(120)]
    table.write_text("\n".join(["site,country,age,ill", *rows]) + "\n")

    def start(name, *, rounds=3, seed=0, privacy=PRIVACY, unit='unit = "country"', table=table):
        from fedfdp.runs import config
        from fedfdp.runs.build import launch

        file = tmp_path / f"{name}.toml"
        file.write_text(TABLE.format(source=table, rounds=rounds, seed=seed, privacy=privacy, unit=unit))
        launch(config.load(str(file)), out=tmp_path / "runs" / name)
        return tmp_path / "runs" / name

    return start


def test_runs_on_the_same_records_add_up(run, tmp_path):
    run("a", rounds=3)
    run("b", rounds=5, seed=1)
    (records,) = register([tmp_path / "runs"])
    assert (records.name, records.unit.one) == ("visits.csv", "country")
    first, second = (epsilon([Event(0.2, (2.0,), n)], 1e-5) for n in (3, 5))
    assert [total.holder for total in records.totals] == ["e", "n"]
    for total in records.totals:
        assert (total.runs, total.delta) == (2, pytest.approx(2e-5))
        assert total.epsilon == pytest.approx(first + second)
        assert total.planned == pytest.approx(epsilon([Event(0.2, (2.0,), 8)], 1e-5))
        assert total.planned < total.epsilon


def test_a_copy_of_the_file_under_another_name_holds_the_same_records(run, tmp_path):
    first, copy = run("a"), tmp_path / "renamed.csv"
    copy.write_bytes((tmp_path / "visits.csv").read_bytes())
    second = run("b", rounds=4, table=copy)
    (records,) = register([first, second])
    assert [total.runs for total in records.totals] == [2, 2]


def test_who_protects_a_person_counts_for_their_records_and_not_the_other_way_round(run, tmp_path):
    run("persons", rounds=3)
    run("rows", rounds=5, unit='ignore = ["country"]')
    by_unit = {records.unit.name: records for records in register([tmp_path / "runs"])}
    rows, persons = by_unit["record"], by_unit["country"]
    each = {entry.place.name: entry.holders["e"].epsilon for entry in rows.entries}
    assert rows.totals[0].epsilon == pytest.approx(each["persons"] + each["rows"])
    assert persons.totals[0].epsilon == pytest.approx(each["persons"])
    assert any("protect one record, not one country (rows)" in said for said in persons.entries[0].warnings)


def test_a_run_without_privacy_is_named_and_not_counted_as_free(run, tmp_path):
    run("a")
    run("open", privacy="")
    (records,) = register([tmp_path / "runs"])
    assert [entry.place.name for entry in records.unprotected] == ["open"]
    assert records.totals[0].runs == 1


def test_where_records_move_between_clients_the_dearest_client_of_each_run_counts(tmp_path, digits):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    private = fedfdp.DPSGD(epsilon=8.0, sigma=2.0, q=0.2, clip=0.5, budgets={digits.names[0]: 0.9})
    other = fedfdp.Federation.partition(fedfdp.data.load("digits"), clients=4, seed=7)
    for name, data, rounds in ("a", digits, 6), ("b", other, 2):
        settings = private if name == "a" else fedfdp.DPSGD(epsilon=8.0, sigma=2.0, q=0.2, clip=0.5)
        fedfdp.train(net, data, algorithm=fedfdp.FedAvg(lr=0.1), privacy=settings, rounds=rounds, out=tmp_path / name)
    (records,) = register([tmp_path / "a", tmp_path / "b"])
    (total,) = records.totals
    assert (total.holder, records.moved) == (ANYONE, True)
    parts = [epsilon([Event(0.2, (2.0,), n)], 1e-5) for n in (6, 2)]
    assert total.epsilon == pytest.approx(sum(parts))
    assert total.planned == pytest.approx(epsilon([Event(0.2, (2.0,), 8)], 1e-5))


def test_a_run_that_was_killed_counts_with_its_whole_plan(tmp_path, digits):
    """Who ends a run may have seen its releases: the statement that is written before the first round says so."""

    def stop(update):
        if update.step.round == 2:
            raise RuntimeError("power failure")

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    private = fedfdp.DPSGD(epsilon=8.0, sigma=2.0, q=0.2, clip=0.5)
    with pytest.raises(RuntimeError, match="power failure"):
        fedfdp.train(net, digits, algorithm=fedfdp.FedAvg(lr=0.1), privacy=private, rounds=9, out=tmp_path / "run",
                     on_update=stop)  # fmt: skip
    (records,) = register([tmp_path / "run"])
    assert records.totals[0].epsilon == pytest.approx(epsilon([Event(0.2, (2.0,), 9)], 1e-5))
    assert records.entries[0].state != "finished"
    (tmp_path / "run" / "privacy.json").unlink()  # as earlier versions left it: what the plan was is not known
    (records,) = register([tmp_path / "run"])
    assert records.totals[0].epsilon == 8.0


@pytest.mark.parametrize("killed", [False, True])
def test_every_holder_counts_with_its_own_budget_and_never_with_less_than_is_stated(tmp_path, killed):
    def stop(update):
        if update.step.round == 2:
            raise RuntimeError if killed else KeyboardInterrupt

    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    holders = fedfdp.Federation.from_clients({n: (x[i::2], (x[i::2, 0] > 0).long()) for i, n in enumerate("ab")})
    private = fedfdp.DPSGD(epsilon=2.0, delta=1e-3, sigma=2.0, q=0.25, clip=1.0, budgets={"a": 8.0}, accountant="rdp")
    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        fedfdp.train(torch.nn.Linear(4, 2), holders, algorithm=fedfdp.ALIDPFL(lr=0.5), privacy=private, rounds=4,
                     out=tmp_path / "run", on_update=stop)  # fmt: skip
    stated = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert {c["client"]: c["epsilon"] for c in stated["clients"]} == {"a": 8.0, "b": 2.0}  # filters
    for _ in range(2):
        (records,) = register([tmp_path / "run"])
        assert {total.holder: total.epsilon for total in records.totals} == {"a": 8.0, "b": 2.0}
        (tmp_path / "run" / "privacy.json").unlink(missing_ok=True)


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    with LedgerBook.open(folder / "ledger.jsonl", data="all records of north, by patient", config="all runs",
                         budgets={"north": 2.0}, delta=1e-6) as book:  # fmt: skip
        for round in range(4):
            book.ledger("north").charge(round, "asked", [Event(0.1, (3.0,), 1)], replayable=False)
    (folder / "evaluations.json").write_text(json.dumps({"answered": 7}))
    file = tmp_path / "node.toml"
    file.write_text(
        'name = "north"\nserver = "127.0.0.1:1"\nfolder = "kept"\nplain_text = true\n'
        '[data]\nfile = "n.csv"\nunit = "patient"\nlabel = "ill"\nclasses = 2\n'
    )
    return file


def test_a_node_counts_by_its_own_ledger_for_its_own_unit(node):
    (records,) = register([node])
    (total,) = records.totals
    assert records.unit.one == "patient"
    assert (total.holder, total.budget, total.delta) == ("north", 2.0, 1e-6)
    assert total.epsilon == 2.0  # whether more rounds follow may depend on what these showed
    assert total.used == total.planned == pytest.approx(epsilon([Event(0.1, (3.0,), 4)], 1e-6))
    page = officers_page([records])
    assert "ε = 2.00" in page
    assert f"{total.used / 2:.0%} of 2" in page
    assert "It is the whole budget of the node" in page
    assert records.entries[0].evaluations == 7


def test_reading_needs_no_lock_and_writes_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with LedgerBook.open(path, data="d", config="c", budgets={"a": 3.0, "b": 3.0}, delta=1e-5) as book:
        book.ledger("a").charge(0, "r", [Event(0.1, (2.0,), 2)], replayable=False)
        before = path.read_bytes(), path.with_name("ledger.jsonl.head").read_bytes()
        assert read_ledger(path).histories == {"a": ((0.1, 2.0, 2),)}  # while another process has it open
        book.ledger("b").charge(0, "r", [Event(0.1, (2.0,), 1)], replayable=False)
    assert before[0] == path.read_bytes()[: len(before[0])]
    found = read_ledger(path)
    assert (found.delta, found.accountant, found.budget) == (1e-5, "pld", 3.0)


def test_a_ledger_that_was_cut_or_edited_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with LedgerBook.open(path, data="d", config="c", budgets={"a": 3.0}, delta=1e-5) as book:
        for round in range(3):
            book.ledger("a").charge(round, "r", [Event(0.1, (2.0,), 2)], replayable=False)
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-2]))
    with pytest.raises(RunError, match="it was cut"):
        read_ledger(path)
    path.write_bytes(whole.replace(b"[2.0]", b"[9.0]", 1))
    with pytest.raises(RunError, match="cannot be trusted"):
        read_ledger(path)
    with pytest.raises(RunError, match="there is no ledger"):
        read_ledger(tmp_path / "none")


def test_a_nodes_folder_alone_does_not_say_whom_it_protects(node, tmp_path):
    with pytest.raises(RunError, match=r"give the node's .toml file"):
        register([tmp_path / "kept"])
    with pytest.raises(RunError, match="there is nothing"):
        register([tmp_path / "missing"])


def test_odds_by_hand():
    assert odds(0.0, 0.3) == pytest.approx(0.3)
    assert odds(math.log(9), 0.5) == pytest.approx(0.9)  # odds of 1 to 1 become 9 to 1
    assert odds(math.log(99), 0.01) == pytest.approx(0.5)
    assert odds(1e4, 0.01) == 1.0
