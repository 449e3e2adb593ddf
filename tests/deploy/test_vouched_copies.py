"""Second copies that an owner vouches for, after real rounds of a node: of many batches, and one answer too old."""

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr")

from fedfdp.algorithms import Ditto, FedAvg
from fedfdp.core import records
from fedfdp.core.errors import RunError, SettingError
from fedfdp.deploy.backup import declare_restored
from fedfdp.deploy.node import open_node
from fedfdp.engines.flower import memory
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.policy import load_node
from fedfdp.engines.flower.terms import Terms
from fedfdp.models import Model
from fedfdp.privacy import DPSGD

ROUNDS = 4
PRIVACY = DPSGD(epsilon=3.0, delta=1e-5, sigma=2.0, q=0.2, clip=1.0, sigma_loss=10.0)


@pytest.fixture
def path(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    np.savez(tmp_path / "records.npz", x=x, y=np.arange(60) % 2)
    about = {
        "name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True,
        "data": {"file": "records.npz", "classes": 2}, "policy": {"epsilon": 50.0, "max_q": 0.5},
    }  # fmt: skip
    (tmp_path / "node.toml").write_text(tomli_w.dumps(about))
    return tmp_path / "node.toml"


def rounds(path, method):
    """The second copy before each round, and after the last one."""
    terms, copies = Terms.of(method, Model("linear"), PRIVACY, 0, seeded=False).to_json(), []
    with open_node(load_node(path)) as node:
        weights = node._agree(terms).engine.learner.initial()
        for number in range(ROUNDS):
            copies.append(node.witness.lines())
            record = records.to_bytes(method.Message(round=number, weights=weights))
            answer = node.answer(Question("train", "run", terms, number, number - 1, record))
            assert answer.status == "ok", answer.reason
        return [*copies, node.witness.lines()]


def spoil(path):
    ledger = path.parent / "state" / "ledger.jsonl"
    spoilt = ledger.read_bytes().replace(b'"round":1', b'"round":7')
    assert spoilt != ledger.read_bytes()
    ledger.write_bytes(spoilt)
    with pytest.raises(RunError, match="is damaged: line 3 was changed"):
        open_node(load_node(path))


@pytest.mark.parametrize("method", [FedAvg(lr=0.1, local_steps=5), Ditto(lr=0.1, local_steps=2)], ids=lambda m: m.name)
def test_where_a_round_is_many_batches_an_intact_copy_is_vouched_for(method, path):
    """Its lines were compared with the batches that were charged, so a damaged ledger had no way back."""
    rounds(path, method)
    with open_node(load_node(path)) as node:
        charged, epsilon = node.book.charged(), node.ledger.epsilon()
    assert memory.load(path.parent / "state").charged == charged > ROUNDS
    spoil(path)
    done = declare_restored(path, by_witness=True)
    assert (done.found, done.assumed, done.epsilon) == (ROUNDS, 0, epsilon)
    with open_node(load_node(path)) as node:
        assert node.book.charged() == charged


@pytest.mark.parametrize("steps", [1, 5])
def test_a_copy_that_lacks_the_last_answer_is_not_vouched_for(steps, path):
    """The answer had left, and its charge was gone."""
    copies = rounds(path, FedAvg(lr=0.1, local_steps=steps))
    (path.parent / "state.witness").write_bytes(copies[-2])
    spoil(path)
    had, sent = steps * (ROUNDS - 1), steps * ROUNDS
    said = f"it has charges of {had} batches, the last answer was sent after {sent}: it is older; leave it out, or"
    with pytest.raises(SettingError, match=said):
        declare_restored(path, by_witness=True)
    (path.parent / "state.witness").write_bytes(copies[-1])
    assert declare_restored(path, by_witness=True).found == ROUNDS


def test_a_charge_whose_answer_was_never_sent_may_be_in_the_ledger_alone(path):
    """A crash between the two: the second copy is one charge behind, and was told of all that was answered."""
    rounds(path, FedAvg(lr=0.1))
    with open_node(load_node(path)) as node:
        node.ledger.charge(ROUNDS, "r", next(node.ledger.entries()).events, replayable=False)
    spoil(path)
    assert declare_restored(path, by_witness=True).found == ROUNDS
