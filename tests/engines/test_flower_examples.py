"""The two examples: they train, they pay, and they stop when there is nothing left."""

import importlib.util
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedfdp.data import load
from fedfdp.privacy import DPSGD, Event, Ledger, epsilon

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_plain_loop_learns_privately(tmp_path, capsys):
    loop = example("plain_pytorch")
    assert loop.main(tmp_path / "ledger.jsonl") > 0.6
    assert "40 steps, ε = " in capsys.readouterr().out
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 40


def test_a_plain_loop_ends_with_its_budget():
    loop, digits = example("plain_pytorch"), load("digits")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with Ledger.open(None, client="me", data="d", config="c", budget=1.0, delta=1e-5, accountant="rdp") as ledger:
        few = {"x": digits.x[:100], "y": digits.y[:100]}
        taken = loop.train(
            model,
            **few,
            privacy=DPSGD(epsilon=3.52, delta=1e-5, sigma=1.0, q=0.1, clip=0.1, sigma_loss=5.0),
            ledger=ledger,
            steps=50,
            lr=0.1,
        )
    affordable = [k for k in range(1, 51) if epsilon([Event(0.1, (1.0,), k)], 1e-5, accountant="rdp") <= 1.0]
    assert taken == (max(affordable) if affordable else 0) < 50


def round_of(app, tmp_path, number, model, *, budget=2.0):
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    content = {"arrays": ArrayRecord(model.state_dict()), "config": ConfigRecord({"server-round": number})}
    message = Message(RecordDict(content), 7, "train")
    node = {"client": "north", "ledger": str(tmp_path / "ledger.jsonl"), "epsilon": budget}
    context = Context(run_id=1, node_id=7, node_config=node, state=RecordDict(), run_config={})
    return app(message, context)


def test_a_flower_client_app_pays_for_every_round_and_ends_with_its_budget(tmp_path):
    module = example("flower_client_app")
    model = module.your_model()
    for number in (1, 2):
        reply = round_of(module.app, tmp_path, number, model)
        moved = reply.content["arrays"].to_torch_state_dict()
        assert not torch.equal(moved["weight"], model.state_dict()["weight"])
        paid = epsilon([Event(0.1, (2.0,), 2 * number)], 1e-5)
        assert paid <= reply.content["metrics"]["epsilon"] <= 1.01 * paid
    from fedfdp.core.errors import BudgetError

    (tmp_path / "poor").mkdir()
    with pytest.raises(BudgetError):
        round_of(module.app, tmp_path / "poor", 3, model, budget=0.01)
