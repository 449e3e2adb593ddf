"""A node pays for no upload that the coordinator would drop for a reason that it knew before."""

import json
import logging
import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("flwr")

from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.policy import Policy
from fedfdp.engines.flower.roster import Roster

FEDAVG = ["algorithm.name=fedavg", "algorithm.lr=0.5", "rounds=6", "eval_every=6"]
SECURE = Policy(epsilon=8.0, max_q=0.2)
CHANGED, OWN = "client-1", "own_accountant:PlainComposition"


def given(deployment, **flower):
    return deployment(*FEDAVG, policy=SECURE, unsafe_seeded=False, quorum=2, **flower)


def rounds_of(out, name):
    arrivals = [json.loads(line)["used"] for line in (out / "arrivals.jsonl").read_text().splitlines()]
    return sum(name in used for used in arrivals)


def begin_again(dep, **changes):
    """The node's owner begins a new folder with another policy."""
    dep.nodes[101].book.close()
    shutil.rmtree(dep.base / CHANGED)
    (dep.base / f"{CHANGED}.witness").unlink()
    dep.policy = replace(dep.policy, **changes)
    dep.start_node(101, CHANGED)
    dep.grid.nodes[101] = dep.nodes[101]


def restart_with_more_records(dep):
    dep.nodes[101].book.close()
    first, old, last = dep.federation.clients
    bigger = replace(old, train=replace(old.train, index=torch.cat([old.train.index, old.test.index])))
    dep.federation = replace(dep.federation, clients=(first, bigger, last))
    dep.start_node(101, CHANGED)
    return old.size, bigger.size


def test_a_node_with_an_accountant_of_its_own_is_named_and_not_asked(deployment, tmp_path, caplog):
    dep, asked = given(deployment), []
    begin_again(dep, accountant=OWN, epsilon=80.0)

    def seen(node, message, reply):
        asked.append((node.name, message.metadata.message_type))
        return reply

    dep.grid.tamper = seen
    with caplog.at_level(logging.WARNING, "fedfdp.server"):
        dep.run(out=tmp_path / "run")
    assert (CHANGED, "train") not in asked
    assert dep.nodes[101].book.charged() == 0
    assert rounds_of(tmp_path / "run", "client-0") == 6
    said = [r.getMessage() for r in caplog.records if CHANGED in r.getMessage() and "not let in" in r.getMessage()]
    (line,) = said  # once, not in every round
    assert f"a ledger with an impossible rule for this run: {OWN}, the run's is pld" in line
    assert "set privacy.accountant to the same, or ask its owner for a node with" in line


def test_such_a_node_refuses_by_itself_too(deployment):
    dep, terms = given(deployment), []

    def seen(node, message, reply):
        terms.append(dict(message.content["fedfdp"])["terms"])
        return reply

    dep.grid.tamper = seen
    dep.run()
    begin_again(dep, accountant=OWN, epsilon=80.0)
    answer = dep.nodes[101].answer(Question("train", "r", next(t for t in terms if t), 0))
    assert (answer.status, answer.reason) == ("refused", "policy.accountant does not allow pld")


def test_a_node_that_comes_back_with_other_records_pays_for_nothing_in_vain(deployment, tmp_path, caplog):
    dep, trained, sizes = given(deployment), [], []

    def restarted(node, message, reply):
        if node.name == CHANGED and message.metadata.message_type == "train":
            trained.append(reply)
            if len(trained) == 2:
                sizes.append(restart_with_more_records(dep))
                dep.grid.nodes[101] = dep.nodes[101]
        return reply

    dep.grid.tamper = restarted
    with caplog.at_level(logging.WARNING, "fedfdp.server"):
        dep.run(out=tmp_path / "run")
    ((before, now),) = sizes
    assert rounds_of(tmp_path / "run", CHANGED) == 5 == dep.nodes[101].book.charged()
    lines = [r.getMessage() for r in caplog.records if CHANGED in r.getMessage()]
    assert lines == [
        f"{CHANGED} refused round 3: it has {now} records now, {before} were declared; ask it hello again",
        f"{CHANGED} has {now} records now, {before} before",
    ]


def test_a_node_that_was_away_says_hello_before_it_is_asked(deployment, tmp_path, caplog):
    dep, trained, others = given(deployment), [], []

    def away(node, message, reply):
        if message.metadata.message_type != "train":
            return reply
        if node.name == CHANGED:
            trained.append(reply)
            if len(trained) == 2:
                restart_with_more_records(dep)
                del dep.grid.nodes[101]
        elif node.name == "client-2":
            others.append(reply)
            if len(others) == 3:
                dep.grid.nodes[101] = dep.nodes[101]
        return reply

    dep.grid.tamper = away
    with caplog.at_level(logging.WARNING, "fedfdp.server"):
        dep.run(out=tmp_path / "run")
    assert rounds_of(tmp_path / "run", CHANGED) == 5 == dep.nodes[101].book.charged()
    assert [r.getMessage().split()[1] for r in caplog.records if CHANGED in r.getMessage()] == ["has"]


def test_a_question_of_other_records_is_refused_before_anything_is_looked_up(deployment):
    node = given(deployment).nodes[101]
    answer = node.answer(Question("train", "r", "no terms", 0, records=node.data.size + 1))
    assert answer.status == "refused"
    assert f"it has {node.data.size} records now, {node.data.size + 1} were declared" in answer.reason
    assert "declared" not in node.answer(Question("train", "r", "no terms", 0, records=node.data.size)).reason


def test_who_was_turned_away_is_not_ready_until_it_says_hello_again():
    class Grid:
        def get_node_ids(self):
            return [7]

    roster = Roster(("a",), Exchange(Grid(), {"a": 7}), hellos={"a": object()})
    assert roster.ready(["a"]) == ["a"]
    roster.turn_away("a", "its ledger shows 3 charges, 7 were seen")
    assert roster.ready(["a"]) == []
    assert roster.refused == {"a": "it was not let in: its ledger shows 3 charges, 7 were seen"}
