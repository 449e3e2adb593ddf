"""Whole runs: same bits from the same seed, across interruptions, and with many clients in one pass."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from torch import nn

import fedfdp
from fedfdp.core.errors import RunError, SettingError
from fedfdp.data import Federation
from fedfdp.models import build
from fedfdp.runs.folder import RunFolder

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5)


def model(federation: Federation) -> nn.Module:
    return build("linear", input_shape=federation.input_shape, outputs=10, seed=1)


def run(federation: Federation, **options) -> fedfdp.Result:
    settings = {"algorithm": fedfdp.FedFDP(lr=2.0), "privacy": PRIVATE, "rounds": 6, "eval_every": 2, "seed": 5}
    settings |= options
    return fedfdp.train(model(federation), federation, **settings)


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("fused", [True, False])
def test_same_seed_same_bits(digits, fused):
    first, again = run(digits, fused=fused), run(digits, fused=fused)
    assert same_bits(first.model, again.model)
    assert first.history == again.history
    assert not same_bits(first.model, run(digits, fused=fused, seed=6).model)


@pytest.mark.usefixtures("shared_noise")
def test_one_pass_for_many_clients_gives_what_one_by_one_gives(digits):
    fused, apart = run(digits, fused=True), run(digits, fused=False)
    for a, b in zip(fused.model.parameters(), apart.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_an_interrupted_run_goes_on_to_the_same_bits(digits, tmp_path, stop):
    whole = run(digits, out=tmp_path / "whole")

    def interrupt(update) -> None:
        if update.step.round == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, out=tmp_path / "cut", on_update=interrupt)
    resumed = run(digits, out=tmp_path / "cut", resume=True)
    assert same_bits(whole.model, resumed.model)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]
    metrics = [RunFolder(tmp_path / name).metrics() for name in ("whole", "cut")]
    assert metrics[0] == metrics[1]
    assert whole.summary["epsilon"] == resumed.summary["epsilon"]


def test_a_run_killed_between_checkpoints_pays_once_and_ends_the_same(digits, tmp_path, monkeypatch):
    """Killed without a last checkpoint: the rounds since the one before are asked again, and are the same request."""
    whole = run(digits, rounds=7, eval_every=3, out=tmp_path / "whole")

    def die(update) -> None:
        if update.step.round == 5:
            raise SystemExit  # nothing saved on the way out, unlike an interrupt

    with pytest.raises(SystemExit):
        run(digits, rounds=7, eval_every=3, out=tmp_path / "cut", on_update=die)
    resumed = run(digits, rounds=7, eval_every=3, out=tmp_path / "cut", resume=True)
    assert same_bits(whole.model, resumed.model)
    assert whole.summary["epsilon"] == resumed.summary["epsilon"]


def test_the_last_affordable_round_can_be_asked_again(digits, tmp_path):
    tight = replace(PRIVATE, epsilon=2.0)
    rounds = run(digits, privacy=tight, rounds=None).summary["rounds"]

    def die(update) -> None:
        if update.step.round == rounds:
            raise SystemExit

    options = {"privacy": tight, "rounds": None, "eval_every": 1000}
    with pytest.raises(SystemExit):
        run(digits, out=tmp_path / "cut", on_update=die, **options)
    (tmp_path / "cut" / "checkpoint").unlink()
    assert run(digits, out=tmp_path / "cut", resume=True, **options).summary["rounds"] == rounds


def test_a_folder_of_another_run_is_refused_and_left_alone(digits, tmp_path):
    run(digits, out=tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(RunError, match="holds a run already"):
        run(digits, out=tmp_path / "run")
    with pytest.raises(RunError, match="belongs to another run: its settings is"):
        run(digits, out=tmp_path / "run", resume=True, seed=9)
    with pytest.raises(RunError, match="is finished"):
        run(digits, out=tmp_path / "run", resume=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(RunError, match="is not an empty folder"):
        run(digits, out=tmp_path / "notes")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_corrupt_checkpoint_is_named(digits, tmp_path):
    def interrupt(update) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, out=tmp_path / "run", on_update=interrupt)
    path = tmp_path / "run" / "checkpoint"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RunError, match="checkpoint is corrupt"):
        run(digits, out=tmp_path / "run", resume=True)


def test_a_full_disk_is_one_clear_line(digits, tmp_path, monkeypatch):
    import os

    def full(*args) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match=r"cannot be written: No space left on device; make room"):
        run(digits, out=tmp_path / "run")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_two_processes_do_not_share_a_folder(digits, tmp_path):
    def interrupt(update) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, out=tmp_path / "run", on_update=interrupt)
    with RunFolder(tmp_path / "run").locked(), pytest.raises(RunError, match="being written by another process"):
        run(digits, out=tmp_path / "run", resume=True)


def test_the_folder_holds_the_released_model_and_its_measures(digits, tmp_path):
    result = run(digits, out=tmp_path / "run", server=fedfdp.ServerOptimizer(average=0.5))
    stored = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in result.model.state_dict().items())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == result.summary
    correct = total = 0
    for client in digits.clients:
        x, y = client.test.take()
        correct += int((result.model(x).argmax(1) == y).sum())
        total += len(y)
    assert summary["accuracy"] == pytest.approx(correct / total)


def test_the_spent_epsilon_is_that_of_the_events(digits):
    summary = run(digits).summary
    events = [fedfdp.privacy.Event(0.2, (2.0, 5.0), count=6)]
    assert summary["epsilon"] == pytest.approx(fedfdp.privacy.epsilon(events, 1e-5))


def test_a_client_whose_budget_is_spent_sits_out(digits, caplog):
    took_part = []
    poor = replace(PRIVATE, budgets={digits.clients[1].name: 1.3})
    result = run(digits, privacy=poor, on_update=lambda update: took_part.append(update.step.took_part))
    assert took_part[0] == 4
    assert took_part[-1] == 3
    assert result.summary["rounds"] == 6
    assert not caplog.messages


def test_the_run_ends_when_no_one_can_pay_and_says_so(digits, caplog):
    poor = replace(PRIVATE, budgets={client.name: 1.3 for client in digits.clients})
    result = run(digits, privacy=poor)
    done = result.summary["rounds"]
    assert 0 < done < 6
    assert caplog.messages == [f"stopped after {done} of 6 rounds: no client can pay for another"]
    assert result.summary["epsilon"] <= 1.3
    assert result.history[-1]["round"] == result.summary["rounds"]


def test_a_method_that_releases_more_than_it_declares_is_stopped(digits):
    class Greedy(fedfdp.FedAvg):
        def private_steps(self, broadcast, privacy) -> int:
            return 1 if broadcast is None else 2

        def events(self, broadcast, privacy):
            return super().events(None, privacy)

    with pytest.raises(fedfdp.FedFDPError, match="released more than its `events` declare"):
        run(digits, algorithm=Greedy(lr=1.0))


def test_learning_without_privacy(digits):
    for method in (fedfdp.FedAvg(lr=0.1, local_epochs=5), fedfdp.FedFair(lr=0.1, lam=0.1, local_epochs=5)):
        summary = run(digits, algorithm=method, privacy=None, rounds=15).summary
        assert summary["epsilon"] is None
        assert summary["accuracy"] > 0.8


def test_dropout_draws_from_the_run_not_from_global_state(digits):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.5), nn.Linear(20, 10))
    torch.manual_seed(1)
    one = fedfdp.train(net, digits, algorithm=fedfdp.FedFDP(lr=1.0), privacy=PRIVATE, rounds=2)
    torch.manual_seed(2)
    other = fedfdp.train(net, digits, algorithm=fedfdp.FedFDP(lr=1.0), privacy=PRIVATE, rounds=2)
    assert same_bits(one.model, other.model)


def test_the_callers_model_is_left_as_it_was(digits):
    net = model(digits)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    fedfdp.train(net, digits, privacy=PRIVATE, rounds=2)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), r"expected \(records, 10\) for that many classes"),
        (nn.Linear(5, 10), r"cannot take records of shape \(1, 8, 8\)"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(digits, net, message):
    with pytest.raises(SettingError, match=message):
        fedfdp.train(net, digits, privacy=PRIVATE, rounds=2)


def test_regression():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5])
    clients = Federation.from_clients({"a": (x[:300], y[:300]), "b": (x[300:], y[300:])}, classes=None)
    result = fedfdp.train(nn.Linear(3, 1), clients, algorithm=fedfdp.FedAvg(lr=0.1), rounds=20)
    assert result.summary["loss"] < 1e-3
    assert result.summary["accuracy"] is None


def test_randomness_of_the_operating_system_is_not_repeated_and_pays_for_a_resumed_round(digits, tmp_path):
    from fedfdp.privacy.noise.secure import grid_step

    assert not same_bits(run(digits, randomness="secure").model, run(digits, randomness="secure").model)

    def die(update) -> None:
        if update.step.round == 3:
            raise SystemExit

    with pytest.raises(SystemExit):
        run(digits, randomness="secure", eval_every=2, out=tmp_path / "cut", on_update=die)
    resumed = run(digits, randomness="secure", eval_every=2, out=tmp_path / "cut", resume=True)
    events = [fedfdp.privacy.Event(0.2, (2.0, 5.0), count=7)]  # round 3 was made twice
    assert resumed.summary["epsilon"] == pytest.approx(fedfdp.privacy.epsilon(events, 1e-5))
    statement = json.loads((tmp_path / "cut" / "privacy.json").read_text())
    assert not any("seed" in warning for warning in statement["warnings"])
    assert grid_step(2.0 * 0.5) == 2.0**-10


def test_what_leaves_a_secure_client_lies_on_the_grid(digits):
    from fedfdp.models.learner import Learner
    from fedfdp.models.losses import cross_entropy
    from fedfdp.privacy.noise.secure import Secure, grid_step
    from fedfdp.training.client import LocalClient

    learner = Learner(model(digits), cross_entropy)
    client = LocalClient(digits.clients[0], learner, privacy=PRIVATE, randomness=Secure(), round=0)
    coefficient = fedfdp.FedAvg().coefficient(None, PRIVATE)
    batch = next(iter(client.batches(steps=1, epochs=None, batch_size=1)))
    gradient = batch.release(learner.initial(), coefficient=coefficient).gradient["1.weight"]
    steps = gradient.double() * PRIVATE.q * client.records / grid_step(PRIVATE.noise * PRIVATE.clip)
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=2e-3)  # up to single precision of the division


def test_a_batch_of_a_regression_may_be_empty():
    """A small holder's batch often is, and what was then computed of it must not end the run."""
    from fedfdp.models.losses import squared_error

    for shape in ((), (1,), (3,)):
        assert squared_error(torch.zeros(0, *(shape or (1,))), torch.zeros(0, *shape)).shape == (0,)
    assert squared_error(torch.tensor([[1.0], [4.0]]), torch.tensor([3.0, 3.0])).tolist() == [4.0, 1.0]
    assert squared_error(torch.tensor([[1.0, 4.0]]), torch.tensor([[3.0, 3.0]])).tolist() == [2.5]
