"""A node's folder that is put back from a copy: it is found, refused until declared, and nothing is ever un-spent."""

import datetime
import json
import shutil
import tarfile
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
import torch

pytest.importorskip("flwr")

from fedfdp.core.errors import RunError, SettingError
from fedfdp.deploy.backup import back_up, declare_restored
from fedfdp.deploy.doctor import examine
from fedfdp.deploy.node import open_node
from fedfdp.deploy.spending import spending
from fedfdp.engines.flower.accounts import Accounts
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.policy import load_node
from fedfdp.engines.flower.terms import learner_of
from fedfdp.privacy import Event, epsilon
from fedfdp.runs.register import distinct, register

ROUND = [Event(0.1, (2.0,))]


@pytest.fixture
def node(tmp_path):
    np.savez(tmp_path / "records.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2)
    return write(tmp_path)


def write(tmp_path, **policy):
    about = {
        "name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True,
        "data": {"file": "records.npz", "classes": 2}, "policy": {"epsilon": 1.0, **policy},
    }  # fmt: skip
    (tmp_path / "node.toml").write_text(tomli_w.dumps(about))
    return tmp_path / "node.toml"


def spend(path, rounds, start=0):
    """Rounds as the node charges them; the witness follows before an answer leaves."""
    with open_node(load_node(path)) as node:
        for number in range(start, start + rounds):
            node.ledger.charge(number, f"{number}", ROUND, replayable=False)
            node.witness.follow()
        return node.ledger.history


def put_back(path, archive):
    folder = path.parent / "state"
    shutil.rmtree(folder)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def backed_up(path, spent_after):
    spend(path, 3)
    back_up(load_node(path), path.parent / "backup.tar.gz")
    if spent_after:
        spend(path, spent_after, start=3)


def test_a_backup_that_is_as_new_as_the_ledger_opens(node, tmp_path):
    backed_up(node, spent_after=0)
    put_back(node, tmp_path / "backup.tar.gz")
    assert sum(count for *_, count in spend(node, 1, start=3)) == 4


def test_an_older_one_is_refused_until_it_is_declared_and_then_nothing_is_left(node, tmp_path):
    backed_up(node, spent_after=4)
    put_back(node, tmp_path / "backup.tar.gz")
    with pytest.raises(RunError, match=r"shows 3 of 7 charges .* an older copy was put back; declare it"):
        open_node(load_node(node))
    done = declare_restored(node)
    assert done.found == 4
    assert done.epsilon > 1.0  # one round more than fits
    with open_node(load_node(node)) as opened:
        assert opened.ledger.short_of(ROUND) == "epsilon = 1"
        assert opened.evaluations.answered == opened.policy.evaluations
    (left,) = spending(node).left
    assert (left.used, left.rounds) == (1.0, 0)


def test_with_a_second_copy_that_its_owner_vouches_for_all_is_exact(node, tmp_path):
    backed_up(node, spent_after=4)
    put_back(node, tmp_path / "backup.tar.gz")
    done = declare_restored(node, by_witness=True)
    assert (done.found, done.assumed) == (4, 0)
    assert done.epsilon == epsilon([Event(0.1, (2.0,), 7)], 1e-5)
    with open_node(load_node(node)) as opened:
        assert opened.ledger.price == ((0.1, 2.0, 1),)  # of the lost rounds too


@pytest.mark.parametrize("accountant", ["pld", "rdp", "filter"])
def test_a_folder_on_another_machine_without_its_second_copy(accountant, tmp_path, node):
    write(tmp_path, accountant=accountant)
    backed_up(node, spent_after=2)
    put_back(node, tmp_path / "backup.tar.gz")
    (tmp_path / "state.witness").unlink()
    with pytest.raises(RunError, match="second copy of the ledger is missing"):
        open_node(load_node(node))
    with pytest.raises(SettingError, match="by-witness"):
        declare_restored(node, by_witness=True)
    assert declare_restored(node).epsilon >= 1.0
    with open_node(load_node(node)) as opened:
        assert not opened.ledger.afford(ROUND)


@pytest.mark.parametrize("how", ["put back", "deleted"])
def test_who_looks_at_a_ledger_that_is_too_short_is_told_and_sees_what_was_spent(how, node, tmp_path):
    backed_up(node, spent_after=6)
    if how == "put back":
        put_back(node, tmp_path / "backup.tar.gz")
    else:
        shutil.rmtree(tmp_path / "state")
    spent = epsilon([Event(0.1, (2.0,), 9)], 1e-5)
    found = spending(node)
    assert found.claim == spent
    assert "of 9 charges" in found.warning
    if how == "put back":  # a deleted folder is no place to look at
        assert spending(tmp_path / "state").claim == spent
    (records,) = register([node])
    assert (records.totals[0].epsilon, records.totals[0].used) == (1.0, spent)  # its budget, and what is used of it
    assert distinct(records.entries) == [found.warning]
    (budget,) = [finding for finding in examine(node) if finding.what == "budget"]
    assert (budget.state, budget.said) == ("bad", found.warning)
    declare_restored(node, by_witness=True)
    assert (spending(node).claim, spending(node).warning) == (spent, "")


def test_a_backup_that_is_put_back_forgets_no_evaluation(node, tmp_path):
    backed_up(node, spent_after=0)
    with open_node(load_node(node)) as opened:
        learner, federation = learner_of(torch.nn.Linear(3, 2), opened.federation), opened.federation
        test = replace(federation.clients[0], test=federation.clients[0].train)
        opened.evaluations.judge(learner.initial(), learner, replace(federation, clients=(test,)))
    put_back(node, tmp_path / "backup.tar.gz")  # nothing was charged since then, so it starts
    with open_node(load_node(node)) as opened:
        assert opened.evaluations.answered == 1
    assert register([node])[0].entries[0].evaluations == 1


def test_a_folder_that_was_deleted_to_begin_anew_is_found(node, tmp_path):
    spend(node, 3)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(RunError, match="shows 0 of 3 charges"):
        open_node(load_node(node))


def test_a_copy_that_went_on_by_itself_counts_with_what_the_other_spent(node, tmp_path):
    backed_up(node, spent_after=2)
    newest = (tmp_path / "state.witness").read_bytes()
    put_back(node, tmp_path / "backup.tar.gz")
    (tmp_path / "state.witness").unlink()
    (tmp_path / "state" / "witnessed").unlink()  # by hand
    spend(node, 1, start=50)
    (tmp_path / "state.witness").write_bytes(newest)  # and the right one is found again
    with pytest.raises(RunError, match="differs from its second copy"):
        open_node(load_node(node))
    assert declare_restored(node, by_witness=True).epsilon == epsilon([Event(0.1, (2.0,), 6)], 1e-5)


def test_where_nothing_was_charged_a_new_ledger_may_have_another_rule(node, tmp_path):
    spend(node, 0)
    shutil.rmtree(tmp_path / "state")
    write(tmp_path, epsilon=2.5)
    spend(node, 2)
    assert (tmp_path / "state.witness").read_bytes() == (tmp_path / "state" / "ledger.jsonl").read_bytes()


def test_a_torn_second_copy_is_completed(node, tmp_path):
    spend(node, 2)
    whole = (tmp_path / "state.witness").read_bytes()
    (tmp_path / "state.witness").write_bytes(whole[:-20])
    spend(node, 1, start=2)
    assert (tmp_path / "state.witness").read_bytes() == (tmp_path / "state" / "ledger.jsonl").read_bytes()


def emptied(copy):
    return b""


def of_the_header_alone(copy):
    return copy[: copy.index(b"\n") + 1]


def cut_to_fewer(copy):
    return b"".join(copy.splitlines(keepends=True)[:2])


def of_random_bytes(copy):
    return np.random.default_rng(0).bytes(300).replace(b"\n", b" ") + b"\n"


@pytest.mark.parametrize("damage", [emptied, of_the_header_alone, cut_to_fewer, of_random_bytes])
def test_a_second_copy_that_is_too_short_or_damaged_un_spends_nothing(damage, node, tmp_path):
    """It passed for one that nothing was charged in, and what the older folder did not know was spent again."""
    backed_up(node, spent_after=3)
    put_back(node, tmp_path / "backup.tar.gz")
    second = tmp_path / "state.witness"
    second.write_bytes(damage(second.read_bytes()))
    with pytest.raises(RunError, match=r"the second copy of the ledger (is empty|shows . of 3|is damaged: line 1)"):
        open_node(load_node(node))
    with pytest.raises(SettingError, match=r"^--by-witness = .*(it is empty|it is older|it is damaged: line 1)"):
        declare_restored(node, by_witness=True)
    assert declare_restored(node).epsilon > 1.0  # all that was allowed
    with open_node(load_node(node)) as opened:
        assert not opened.ledger.afford(ROUND)


def test_a_second_copy_of_another_node_is_not_vouched_for(node, tmp_path):
    backed_up(node, spent_after=1)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "records.npz", other)
    text = node.read_text().replace('"north"', '"south"')
    (other / "node.toml").write_text(text)
    spend(other / "node.toml", 6)
    shutil.copy(other / "state.witness", tmp_path / "state.witness")
    with pytest.raises(SettingError, match="the copy of 'south', not of 'north'"):
        declare_restored(node, by_witness=True)


def test_a_cut_ledger_is_not_begun_again_from_an_older_copy(node, tmp_path):
    """Its head knows of more."""
    spend(node, 5)
    older = (tmp_path / "state.witness").read_bytes()
    spend(node, 5, start=5)
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:5]))
    (tmp_path / "state.witness").write_bytes(older)
    with pytest.raises(SettingError, match="it has 5 charges, the folder 10: it is older"):
        declare_restored(node, by_witness=True)
    assert declare_restored_after_setting_aside(node, tmp_path) > 1.0


def declare_restored_after_setting_aside(node, tmp_path):
    """What is left to an owner who has nothing better: the whole budget counts as spent."""
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        (tmp_path / "state" / name).rename(tmp_path / name)
    return declare_restored(node).epsilon


def test_a_damaged_ledger_is_not_begun_again_from_the_copy_of_another_folder(node, tmp_path):
    spend(node, 5)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "records.npz", other)
    shutil.copy(node, other)
    with open_node(load_node(other / "node.toml")) as opened:
        for number in range(5):
            opened.ledger.charge(number, f"{number}", [Event(0.001, (20.0,))], replayable=False)
            opened.witness.follow()
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"round":4', b'"round":7'))
    shutil.copy(other / "state.witness", tmp_path / "state.witness")
    with pytest.raises(SettingError, match="it is no copy of the part of the ledger that can be read"):
        declare_restored(node, by_witness=True)


@pytest.mark.parametrize("by_witness", [True, False])
def test_a_declaration_that_is_cut_short_leaves_no_evaluation_and_no_memory(by_witness, node, tmp_path, monkeypatch):
    backed_up(node, spent_after=4)
    put_back(node, tmp_path / "backup.tar.gz")
    with monkeypatch.context() as cut:
        cut.setattr("fedfdp.engines.flower.witness.Witness.begin_anew", lambda self: exit(1))
        with pytest.raises(SystemExit):
            declare_restored(node, by_witness=by_witness)
    try:
        opened = open_node(load_node(node))
    except RunError:
        return  # to be declared again
    with opened:
        assert opened.evaluations.answered == opened.policy.evaluations


def test_a_ledger_of_persons_is_begun_again_as_one_of_persons(node, tmp_path):
    people = np.arange(40) // 2
    np.savez(tmp_path / "records.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2, person=people)
    about = tomllib.loads(node.read_text())
    about["data"]["unit"] = "person"
    node.write_text(tomli_w.dumps(about))
    spend(node, 3)
    del about["data"]["unit"]  # as where a function of the owner's says it
    node.write_text(tomli_w.dumps(about))
    ledger = tmp_path / "state" / "ledger.jsonl"
    header = ledger.read_bytes().splitlines()[0]
    ledger.write_bytes(ledger.read_bytes().replace(b'"round":2', b'"round":7'))
    declare_restored(node, by_witness=True)
    assert json.loads(ledger.read_bytes().splitlines()[0])["data"] == json.loads(header)["data"]
    assert "person" in json.loads(header)["data"]


def test_a_second_copy_that_is_taken_away_from_a_running_node_is_written_whole(node, tmp_path):
    with open_node(load_node(node)) as opened:
        for number in range(4):
            opened.ledger.charge(number, f"{number}", ROUND, replayable=False)
            if number == 2:
                (tmp_path / "state.witness").unlink()
            opened.witness.follow()
    assert (tmp_path / "state.witness").read_bytes() == (tmp_path / "state" / "ledger.jsonl").read_bytes()


def test_a_second_copy_in_the_folder_itself_is_refused(node, tmp_path):
    about = tomllib.loads(node.read_text()) | {"witness": "state/second"}
    node.write_text(tomli_w.dumps(about))
    with pytest.raises(SettingError, match=r"witness = .*with which it would be put back"):
        open_node(load_node(node))


@pytest.mark.parametrize("what", ["a digit", "the head"])
def test_a_damaged_ledger_is_begun_again_from_its_second_copy(what, node, tmp_path):
    """It was said to be an older one, to be declared; and what declares it could not read it."""
    spend(node, 4)
    ledger = tmp_path / "state" / "ledger.jsonl"
    if what == "a digit":
        ledger.write_bytes(ledger.read_bytes().replace(b'"round":2', b'"round":7'))
    else:
        ledger.with_name("ledger.jsonl.head").unlink()
    damaged = ledger.read_bytes()
    for look in (lambda: open_node(load_node(node)), lambda: spending(node)):
        with pytest.raises(RunError, match=r"begin it again from the second copy with: fedfdp node restored .* --by-w"):
            look()
    done = declare_restored(node, by_witness=True)
    assert (done.found, done.epsilon) == (4, epsilon([Event(0.1, (2.0,), 4)], 1e-5))
    assert (tmp_path / "state" / "ledger.jsonl.damaged-1").read_bytes() == damaged  # nothing is lost
    assert sum(count for *_, count in spend(node, 1, start=4)) == 5


def test_a_second_copy_with_a_damaged_end_is_one_line(node, tmp_path):
    spend(node, 3)
    with open(tmp_path / "state.witness", "ab") as second:
        second.write(b"garbage\n")
    with pytest.raises(RunError, match="the second copy of the ledger is damaged: line 5 was changed; declare it with"):
        open_node(load_node(node))
    found = spending(node)
    assert (found.claim, "line 5 was changed" in found.warning) == (epsilon([Event(0.1, (2.0,), 3)], 1e-5), True)
    with pytest.raises(SettingError, match="it is damaged: line 5 was changed"):
        declare_restored(node, by_witness=True)


def test_a_backup_is_for_its_owner_alone_and_not_of_a_damaged_ledger(node, tmp_path):
    spend(node, 3)
    back_up(load_node(node), tmp_path / "one.tar.gz")
    assert (tmp_path / "one.tar.gz").stat().st_mode & 0o777 == 0o600
    ledger = tmp_path / "state" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"round":2', b'"round":7'))
    with pytest.raises(RunError, match="is damaged: line 4 was changed; a backup of it would be of no use"):
        back_up(load_node(node), tmp_path / "two.tar.gz")
    assert not (tmp_path / "two.tar.gz").exists()


def test_a_backup_while_the_node_runs_is_whole(node, tmp_path):
    with open_node(load_node(node)) as opened:
        for number in range(5):
            opened.ledger.charge(number, f"{number}", ROUND, replayable=False)
            opened.witness.follow()
            assert back_up(opened.config, tmp_path / f"{number}.tar.gz") == number + 1
    put_back(node, tmp_path / "4.tar.gz")
    spend(node, 1, start=5)
    with pytest.raises(SettingError, match="exists already"):
        back_up(load_node(node), tmp_path / "4.tar.gz")


def test_the_coordinator_remembers_what_it_saw_over_runs(node, tmp_path):
    said = lambda n: json.dumps(  # noqa: E731
        {"history": [[0.1, 2.0, n]], "accountant": "pld", "budget": 1.0, "delta": 1e-5}
    )
    first = Accounts(1e-5, "pld", {}, register=tmp_path / "nodes.json")
    first.report("north", said(7))
    first.keep()
    later = Accounts(1e-5, "pld", {}, register=tmp_path / "nodes.json")
    assert later.seen("north") == 7
    with pytest.raises(Exception, match="shows 3 charges, 7 were seen"):
        later.report("north", said(3))
    later.report("north", said(3), past=True)  # of a run that is resumed
    assert later.seen("north") == 7
    spend(node, 3)
    with open_node(load_node(node)) as opened:
        answer = opened.answer(Question("train", "run", "{}", 3, 1, b"", later.seen("north")))
        assert answer.status == "refused"
        assert "7 charges of this node were seen, its ledger shows 3" in answer.reason
    (tmp_path / "nodes.json").write_text("[]")
    with pytest.raises(SettingError, match=r"flower\.register"):
        Accounts(1e-5, "pld", {}, register=tmp_path / "nodes.json")


def test_dates_of_a_second_copy_open_no_period_again(node, tmp_path):
    limit = epsilon([Event(0.1, (2.0,), 3)], 1e-5) * 1.001
    write(tmp_path, epsilon_per_period=limit)
    backed_up(node, spent_after=0)
    put_back(node, tmp_path / "backup.tar.gz")
    declare_restored(node, by_witness=True, today=lambda: datetime.date(2020, 1, 1))
    with open_node(load_node(node)) as opened:
        assert opened.ledger.short_of(ROUND).startswith("epsilon")
