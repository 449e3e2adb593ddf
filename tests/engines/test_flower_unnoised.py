"""Rounds that a node answered without noise: counted before they leave, and told wherever its ε is told."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

pytest.importorskip("flwr")

from fedfdp.algorithms import FedAvg
from fedfdp.algorithms.base import Broadcast
from fedfdp.cli.main import app
from fedfdp.core import records
from fedfdp.core.errors import DataError, RunError
from fedfdp.deploy.backup import back_up, declare_restored
from fedfdp.deploy.doctor import examine
from fedfdp.deploy.node import open_node
from fedfdp.deploy.spending import spending
from fedfdp.engines.flower import unnoised as counts
from fedfdp.engines.flower.accounts import Accounts
from fedfdp.engines.flower.messages import Answer, Question, pack, unpack
from fedfdp.engines.flower.policy import Policy, load_node
from fedfdp.engines.flower.terms import Terms
from fedfdp.engines.flower.unnoised import unnoised
from fedfdp.models import Model
from fedfdp.privacy import DPSGD
from fedfdp.privacy import unnoised as words
from fedfdp.privacy.unnoised import Unnoised, told_in
from fedfdp.report.officer import officers_page
from fedfdp.runs.register import register

BOTH = Policy(epsilon=8.0, max_q=0.2, without_privacy=True)
FEDAVG = ["algorithm.name=fedavg", "algorithm.lr=0.5"]
PRIVACY = DPSGD(epsilon=3.0, delta=1e-5, sigma=2.0, q=0.1, clip=1.0, sigma_loss=10.0)


@pytest.fixture
def node(tmp_path):
    """A node whose owner allows rounds without noise."""
    np.savez(
        tmp_path / "records.npz",
        x=np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32),
        y=np.arange(40) % 2,
    )
    return write(tmp_path)


def write(tmp_path, **policy):
    about = {
        "name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True,
        "data": {"file": "records.npz", "classes": 2},
        "policy": {"epsilon": 3.0, "without_privacy": True, **policy},
    }  # fmt: skip
    (tmp_path / "node.toml").write_text(tomli_w.dumps(about))
    return tmp_path / "node.toml"


def answer(opened, run, round, privacy=None):
    terms = Terms.of(FedAvg(lr=0.1), Model("linear"), privacy, 0, seeded=False).to_json()
    weights = opened._agree(terms).engine.learner.initial()
    said = opened.answer(
        Question("train", run, terms, round, round - 1, records.to_bytes(Broadcast(round=round, weights=weights)))
    )
    assert said.status == "ok", said.reason
    return said


def bare(path, rounds, run="open"):
    with open_node(load_node(path)) as opened:
        for round in range(rounds):
            answer(opened, run, round)
        return answer(opened, "closed", 0, PRIVACY)


def folder_of(path):
    config = load_node(path)
    return path.parent / "state", config.second


def test_everybody_who_sees_the_epsilon_is_told(node):
    said = bare(node, 5)
    assert told_in(said.spent).in_words() == "5 rounds in run open"
    found = spending(node)
    assert (found.unnoised.rounds, found.runs[0].rounds) == (5, 1)
    assert found.to_dict()["unnoised"]["runs"][0]["method"] == "fedavg"
    assert spending(node.parent / "state").unnoised == found.unnoised
    shown = CliRunner().invoke(app, ["node", "ledger", str(node)]).stdout
    assert "answered without noise, which no ε covers: 5 rounds in run open" in shown
    (line,) = [finding for finding in examine(node) if finding.what == "noise"]
    assert line.state == "look"
    assert "policy.without_privacy = true" in line.said
    assert "5 rounds in run open" in line.said
    entries = register([node])
    assert entries[0].unnoised == {"north": "5 rounds in run open"}
    page = officers_page(entries)
    assert "answered without noise: north: 5 rounds in run open. No number on this page covers" in page
    assert "only noised sums" not in page
    page = node.parent / "officer.html"
    shown = CliRunner().invoke(app, ["officer", str(node), "--out", str(page)]).stdout
    assert "rounds were answered without noise, which no ε covers: north: 5 rounds in run open" in shown
    plain = json.loads(CliRunner().invoke(app, ["officer", str(node), "--json"]).stdout)
    assert plain[0]["without_noise"] == {"north": "5 rounds in run open"}


def test_nothing_is_said_of_a_node_that_never_did(tmp_path, node):
    write(tmp_path, without_privacy=False)
    said = bare(node, 0)
    assert told_in(said.spent) == Unnoised()
    assert not spending(node).unnoised
    assert [finding.what for finding in examine(node)].count("noise") == 0
    assert "only noised sums leave a holder" in officers_page(register([node]))
    write(tmp_path)
    (line,) = [finding.said for finding in examine(node) if finding.what == "noise"]
    assert "leave it out" in line


def test_the_same_question_again_is_no_round_more_and_a_second_answer_is(node):
    with open_node(load_node(node)) as opened:
        first = answer(opened, "open", 0)
        assert answer(opened, "open", 0).record == first.record
        assert opened.unnoised.found.rounds == 1


def test_it_is_on_the_disk_before_records_are_read(node, monkeypatch):
    from fedfdp.engines.local import LocalEngine

    seen = []

    def round_(self, *args, **kwargs):
        seen.append(unnoised(*folder_of(node)).rounds)
        raise ValueError("a fault")

    monkeypatch.setattr(LocalEngine, "round", round_)
    with pytest.raises(AssertionError):
        bare(node, 1)
    assert seen == [1]


def test_a_kill_after_the_count_and_before_the_answer(node):
    """It survives kill -9: the process ends itself where the answer would be computed."""
    script = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
        from test_flower_unnoised import bare
        from fedfdp.engines.local import LocalEngine
        LocalEngine.round = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        bare(Path({str(node)!r}), 1)
    """)
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert unnoised(*folder_of(node)).rounds == 1
    with open_node(load_node(node)) as opened:
        assert opened.unnoised.found.rounds == 1


def test_an_older_folder_that_is_put_back_forgets_none(node, tmp_path):
    bare(node, 2)
    back_up(load_node(node), tmp_path / "kept.tar.gz")
    with open_node(load_node(node)) as opened:  # no charge tells the two copies of the ledger apart
        for round in range(3):
            answer(opened, "later", round)
    shutil.rmtree(tmp_path / "state")
    shutil.unpack_archive(tmp_path / "kept.tar.gz", tmp_path / "state", filter="data")
    with open_node(load_node(node)) as opened:
        assert opened.unnoised.found.rounds == 5
        assert told_in(answer(opened, "later", 9).spent).rounds == 6


def test_a_backup_holds_it_and_a_declared_restore_says_what_is_not_known(node, tmp_path):
    bare(node, 2)
    back_up(load_node(node), tmp_path / "kept.tar.gz")
    shutil.rmtree(tmp_path / "state")
    for lost in tmp_path.glob("state.witness*"):
        lost.unlink()
    shutil.unpack_archive(tmp_path / "kept.tar.gz", tmp_path / "state", filter="data")
    assert unnoised(*folder_of(node)).rounds == 2
    declare_restored(node)
    not_known = "2 rounds in run open; an older copy of its folder was put back, and how many were answered before that"
    assert register([node])[0].unnoised["north"].startswith(not_known)
    assert spending(node).unnoised.restored
    with open_node(load_node(node)) as opened:
        assert told_in(opened.answer(Question("hello", "", "")).spent).in_words().startswith(not_known)


def test_a_corrupt_count_is_one_line(node):
    bare(node, 1)
    (node.parent / "state" / "unnoised.json").write_text("{")
    with pytest.raises(RunError, match=r"unnoised.json is corrupt; put back a copy of it, such as .*state.witness"):
        open_node(load_node(node))
    assert [finding.state for finding in examine(node) if finding.what == "noise"] == ["bad"]


def test_many_runs_are_counted_and_a_few_named(monkeypatch):
    monkeypatch.setattr(words, "MOST_RUNS", 20)
    found = Unnoised()
    for number in range(30):
        found = found.add(f"r{number}", "fedavg", "2026-01-01").add(f"r{number}", "fedavg", "2026-01-02")
    assert (found.rounds, len(found.parts)) == (60, 21)
    told = told_in(json.dumps({"unnoised": found.told()}))
    assert (told.rounds, len(told.parts)) == (60, words.MOST_TOLD)
    assert found.in_words() == "60 rounds: 2 in run r19, 2 in run r18, 56 in other runs"
    assert found.add("r3", "fedavg", "2026-01-03").in_words().startswith("61 rounds: 3 in run r3, ")
    assert words.of_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_older_versions_read_a_report_as_ever():
    """They refuse one with more than four entries, and pass over records that they do not know."""
    rule = {"history": [], "accountant": "pld", "budget": 3.0, "delta": 1e-5}
    spent = json.dumps({**rule, "unnoised": Unnoised().add("open", "fedavg", "").told()})
    sent = pack(Answer("ok", "run", 3, spent=spent, record=b"record"))
    assert json.loads(sent["fedfdp"]["spent"]) == rule
    assert set(sent["fedfdp"]) == {"status", "run", "round", "reason", "spent"}
    assert sent["protocol"]["oldest"] == 2
    assert told_in(unpack(Answer, sent, limit=100).spent).rounds == 1
    del sent["unnoised"]
    assert told_in(unpack(Answer, sent, limit=100).spent) is None


@pytest.mark.parametrize(
    "said",
    [
        "[]", "{", "[" * 100_000, "7", '{"runs": []}', '{"runs": 3, "restored": false}',
        '{"runs": [["a b", 1]], "restored": false}', '{"runs": [["a", 0]], "restored": false}',
        '{"runs": [["a", 1.5]], "restored": false}', '{"runs": [["a"]], "restored": false}',
        '{"runs": [], "restored": 1}', json.dumps({"runs": [["a", 1]] * 99, "restored": False}),
    ],
)  # fmt: skip
def test_a_malformed_report_of_a_node_is_refused(said):
    sent = pack(Answer("ok", "run", 3, spent='{"unnoised": {"runs": [], "restored": false}}'))
    sent["unnoised"] = type(sent["fedfdp"])({"rounds": said})
    with pytest.raises(DataError, match=r"malformed|not a valid"):
        told_in(unpack(Answer, sent, limit=100).spent)


def report(found, charges=0):
    history = [[0.1, 2.0, charges]] if charges else []
    rule = {"history": history, "accountant": "pld", "budget": 3.0, "delta": 1e-5}
    return json.dumps({**rule, "unnoised": found.told()})


def test_a_coordinator_never_says_less_than_it_was_told():
    accounts = Accounts(1e-5, "pld", {"a": 3.0, "b": 3.0})
    once = Unnoised().add("open", "fedavg", "")
    accounts.report("a", report(once.add("open", "fedavg", ""), 2))
    accounts.report("a", report(once, 2))
    with pytest.raises(DataError, match="less than it did before"):  # its ledger is refused, what it admits is not
        accounts.report("a", report(replace(once.add("more", "fedavg", "").add("more", "fedavg", "")), 1))
    assert accounts.without_noise() == {"a": "3 rounds: 2 in run more, 1 in run open"}
    resumed = Accounts(1e-5, "pld", {"a": 3.0})
    resumed.report("a", json.dumps(accounts.to_dict()["a"]), past=True)
    assert resumed.without_noise() == accounts.without_noise()


def test_the_statement_of_a_later_private_run_says_it(deployment, tmp_path):
    dep = deployment(*FEDAVG, policy=BOTH, unsafe_seeded=False)
    private = dep.config
    dep.config = replace(private, privacy=None)
    dep.run(out=tmp_path / "open")
    dep.config = private
    dep.run(out=tmp_path / "closed")
    made = json.loads((tmp_path / "closed" / "privacy.json").read_text())
    assert set(made["unnoised"]) == {"client-0", "client-1", "client-2"}
    assert all(words.startswith("3 rounds in run ") for words in made["unnoised"].values())
    (warning,) = [line for line in made["warnings"] if "without noise" in line]
    assert "No epsilon covers" in warning
    assert "client-1 (3 rounds in run " in warning
    assert warning in (tmp_path / "closed" / "privacy.md").read_text()
    assert not any("does not say" in remark for remark in made["remarks"])
    page = officers_page(register([tmp_path / "closed"]))
    assert "only noised sums" not in page
    assert "client-1: 3 rounds in run " in page


def test_the_statement_says_of_which_nodes_it_is_not_known(deployment, tmp_path):
    dep = deployment(*FEDAVG, policy=BOTH, unsafe_seeded=False)

    def older(node, message, reply):
        if node.name == "client-1" and "unnoised" in reply.content:
            del reply.content["unnoised"]
        return reply

    dep.grid.tamper = older
    dep.run(out=tmp_path / "run")
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert made["unnoised"] == {}
    (remark,) = [line for line in made["remarks"] if "does not say" in line]
    assert remark.startswith(
        "client-1: its version of fedfdp does not say whether it has answered rounds without noise"
    )


def test_a_node_and_its_doctor_compare_delta_with_its_own_records(tmp_path, node, caplog):
    write(tmp_path, delta=0.05)
    with open_node(load_node(node)):
        (line,) = [record.getMessage() for record in caplog.records if "1/n" in record.getMessage()]
    assert line.startswith("policy.delta = 0.05 is not below 1/n = 0.033 (n = 30 records)")  # a quarter is for the test
    (data,) = [finding for finding in examine(node) if finding.what == "data"]
    assert data.state == "look"
    assert "40 records can be read; policy.delta = 0.05 is not below 1/n" in data.said
    assert counts.UNNOISED not in [file.name for file in (tmp_path / "state").iterdir()]


def test_a_restored_node_without_a_count_is_not_said_to_have_answered_any(node):
    said = "not known: an older copy of its folder was put back"
    assert Unnoised(restored=True).in_words() == said
    bare(node, 0)
    (node.parent / "state.witness").unlink()
    declare_restored(node)
    assert register([node])[0].unnoised == {"north": said}
    assert f"Rounds that were answered without noise: north: {said}. No number" in officers_page(register([node]))
