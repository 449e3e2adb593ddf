"""Evaluation at a node: test records only, counted, limited, and said in the statement."""

import json
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

from fedfdp.core.errors import RunError, SettingError
from fedfdp.core.records import Weights, from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.engines.flower.messages import Judge, Judged, Question
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig, NodeData, Policy
from fedfdp.engines.flower.terms import Terms, build_model

OPEN = Policy(epsilon=8.0, max_q=0.2, evaluate=True)
FEDFDP = ["algorithm.name=fedfdp", "algorithm.lr=0.5"]


@dataclass(frozen=True)
class JudgeOfTraining:
    """What an earlier version of the protocol asked with."""

    weights: Weights
    train: bool


def ask(dep, record):
    config = dep.config.resolved()
    terms = Terms.of(config.algorithm, config.model, config.privacy, config.seed, seeded=False)
    return Question("evaluate", "r", terms.to_json(), record=record)


def weights_of(federation):
    model = build_model({"name": "linear"}, federation, seed=0)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_the_loss_on_training_records_cannot_be_asked_for(deployment):
    dep = deployment(*FEDFDP, policy=OPEN, unsafe_seeded=False)
    node = dep.nodes[100]
    answer = node.answer(ask(dep, to_bytes(JudgeOfTraining(weights_of(dep.federation), True))))
    assert (answer.status, answer.record) == ("refused", b"")
    assert "/train is not part of it" in answer.reason
    assert not any("train" in f.name for f in fields(Judged))


def test_what_is_answered_does_not_depend_on_training_records(deployment, tmp_path):
    """Two nodes with the same test records and other training records say the same."""
    dep = deployment(*FEDFDP, policy=OPEN, unsafe_seeded=False)
    rng, said = np.random.default_rng(0), []
    test = rng.normal(size=(9, 64)).astype(np.float32), rng.integers(0, 10, 9)
    for n in (20, 30):
        train = rng.normal(size=(n, 64)).astype(np.float32), rng.integers(0, 10, n)
        federation = Federation.from_clients({"a": (*train, *test)}, classes=10)
        about = NodeConfig("a", "127.0.0.1:1", str(tmp_path / str(n)), NodeData(file="-"), plain_text=True, policy=OPEN)
        with Node(about, federation) as node:
            said.append(node.answer(ask(dep, to_bytes(Judge(weights_of(federation))))))
    assert said[0].status == said[1].status == "ok"
    assert said[0].record == said[1].record
    weights = weights_of(federation)
    outputs = torch.from_numpy(test[0]) @ weights["1.weight"].T + weights["1.bias"]
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(test[1]))
    assert from_bytes(Judged, said[0].record) == Judged(
        pytest.approx(float(loss), rel=1e-5),
        pytest.approx(float((outputs.argmax(1) == torch.from_numpy(test[1])).double().mean())),
        9,
        1,
    )


def test_evaluations_are_counted_on_the_disk_and_end(deployment):
    from fedfdp.engines.flower.judging import EVALUATIONS

    dep = deployment(*FEDFDP, policy=replace(OPEN, evaluations=3), unsafe_seeded=False)
    node, question = dep.nodes[100], ask(dep, to_bytes(Judge(weights_of(dep.federation))))
    assert [from_bytes(Judged, node.answer(question).record).answered for _ in range(2)] == [1, 2]
    node.book.close()
    node = dep.start_node(100, "client-0")  # a restart forgets nothing
    assert from_bytes(Judged, node.answer(question).record).answered == 3
    refused = node.answer(question)
    assert (refused.status, refused.reason) == ("refused", "policy.evaluations does not allow more than 3 in all")
    assert json.loads((node.folder / EVALUATIONS).read_text()) == {"answered": 3}
    assert list(node.ledger.entries()) == []
    (node.folder / EVALUATIONS).write_text("{")
    node.book.close()
    with pytest.raises(RunError, match=r"evaluations\.json is corrupt"):
        dep.start_node(100, "client-0")


def test_the_statement_says_who_gave_out_raw_measures_of_test_records(deployment, tmp_path):
    dep = deployment(*FEDFDP, policy=OPEN, unsafe_seeded=False)
    closed = dep.nodes[102]
    closed.policy = replace(OPEN, evaluate=False)
    dep.run(out=tmp_path / "run")
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert made["evaluated"] == {"client-0": 3, "client-1": 3}  # three rounds, each of them evaluated
    warning = next(line for line in made["warnings"] if "un-noised" in line)
    assert "client-0 (3 so far), client-1 (3 so far)" in warning
    assert "client-2" not in warning
    assert "test records are not protected" in warning
    page = (tmp_path / "run" / "privacy.md").read_text()
    assert warning in page

    dep = deployment(*FEDFDP, policy=replace(OPEN, evaluate=False), unsafe_seeded=False)
    dep.run(out=tmp_path / "closed")
    made = json.loads((tmp_path / "closed" / "privacy.json").read_text())
    assert made["evaluated"] == {}
    assert not any("un-noised" in line for line in made["warnings"])


def federation(x, y, x_test, y_test, units=None):
    given = {"a": (np.float32(x), np.array(y), np.float32(x_test), np.array(y_test))}
    return Federation.from_clients(given, classes=2, units=units).clients[0]


def test_records_for_both_are_told_to_the_owner(caplog):
    from fedfdp.engines.flower.judging import check_apart

    train = ([[0.0], [1.0], [2.0]], [0, 1, 0])
    check_apart(federation(*train, [[3.0], [0.0]], [0, 1]), split_given=True)  # another label: another record
    assert caplog.text == ""
    check_apart(federation(*train, [[3.0], [0.0]], [0, 0]), split_given=True)
    assert "1 test records are equal to training records" in caplog.text
    with pytest.raises(SettingError, match=r"policy.evaluate = True: every one of the 2 test records is equal to"):
        check_apart(federation(*train, [[2.0], [0.0]], [0, 0]), split_given=True)
    people = {"a": ["p", "q", "r", "s", "p"]}
    with pytest.raises(SettingError, match="1 persons have training records and test records"):
        check_apart(federation(*train, [[3.0], [4.0]], [0, 0], people), split_given=True)
    client = federation(*train, [[3.0]], [0])
    both = replace(client, test=client.train)
    with pytest.raises(SettingError, match="some test records are training records"):
        check_apart(both, split_given=False)
