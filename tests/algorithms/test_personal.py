"""Rounds of MR-MTL, Ditto and local training worked out on paper, and what clients of such methods are judged by.

w = (u, v) from (1, 0), as in test_methods_by_hand.py. Mean gradients: a (u, 4v − 2), b (u/2, 0); p = (⅔, ⅓).
"""

import pytest
import torch

import fedfdp
from fedfdp.algorithms import MRMTL, Ditto, FedAvg, LocalOnly
from fedfdp.core.errors import SettingError
from fedfdp.models import build
from fedfdp.privacy.dpsgd import DPSGD
from rounds import flat, linear, play
from support import Given

PRIVATE = DPSGD(epsilon=100.0, sigma=2.0, q=1.0, clip=1.0)


def near(*values: float):
    return pytest.approx(values, abs=2e-6)


def own(played, client: str) -> list[float]:
    return flat(played.memories[client].weights)


def test_local_two_rounds(two_clients):
    # a: (1, 0) → (0.9, 0.2) → (0.81, 0.32); b: 1 → 0.95 → 0.9025. Nothing is sent, and nothing moves
    played = play(LocalOnly(lr=0.1), two_clients, linear(1, 0), rounds=2)
    assert (own(played, "a"), own(played, "b")) == (near(0.81, 0.32), near(0.9025, 0))
    assert played.weights == [1.0, 0.0]
    assert [flat(upload.update) for upload in played.uploads] == [[0.0, 0.0]] * 2


def test_mrmtl_two_rounds(two_clients):
    method = MRMTL(lr=0.1, lam=0.5)
    first = play(method, two_clients, linear(1, 0))
    assert (own(first, "a"), own(first, "b")) == (near(0.9, 0.2), near(0.95, 0))
    u, v = 1 - (2 * 0.1 + 0.05) / 3, 0.4 / 3
    assert first.weights == near(u, v)
    # a: gradient (0.9, −1.2), pull ½((0.9, 0.2) − w̄); b: (0.475, 0), ½((0.95, 0) − w̄)
    second = play(method, two_clients, linear(1, 0), after=first)
    a = (0.9 - 0.1 * (0.9 + 0.5 * (0.9 - u)), 0.2 - 0.1 * (-1.2 + 0.5 * (0.2 - v)))
    b = (0.95 - 0.1 * (0.475 + 0.5 * (0.95 - u)), -0.1 * 0.5 * (0 - v))
    assert (own(second, "a"), own(second, "b")) == (near(*a), near(*b))
    assert second.weights == near((2 * a[0] + b[0]) / 3, (2 * a[1] + b[1]) / 3)


def test_mrmtl_pulls_after_the_noise(two_clients):
    # clipped to (1, −1) in sum, + 0.2 each, over 2: (0.6, −0.4); the pull 0.5·(−0.3, 0.2) is not clipped
    method = MRMTL(lr=0.5, lam=0.5, local_steps=2)
    played = play(method, two_clients, linear(1, 0), privacy=PRIVATE, randomness=Given(0.1))
    assert own(played, "a") == near(1 - 0.3 - 0.225, 0.2 + 0.15)


def test_mrmtl_without_a_pull_is_local_and_with_the_strongest_is_fedavg(two_clients):
    alone, apart = (play(m, two_clients, linear(1, 0), rounds=3) for m in (LocalOnly(lr=0.1), MRMTL(lr=0.1, lam=0.0)))
    assert [own(alone, name) for name in "ab"] == [own(apart, name) for name in "ab"]
    # λ = 1/η puts each client back to w̄ before its step
    joint = play(MRMTL(lr=0.1, lam=10.0), two_clients, linear(1, 0), rounds=1)
    plain = play(FedAvg(lr=0.1), two_clients, linear(1, 0), rounds=1)
    assert joint.weights == near(*plain.weights)
    stronger = play(MRMTL(lr=0.1, lam=1e6), two_clients, linear(1, 0), rounds=9)
    assert stronger.weights == near(*play(MRMTL(lr=0.1, lam=10.0), two_clients, linear(1, 0), rounds=9).weights)


def test_ditto_two_rounds(two_clients):
    method = Ditto(lr=0.1, lam=0.5)
    first = play(method, two_clients, linear(1, 0))
    plain = play(FedAvg(lr=0.1), two_clients, linear(1, 0), rounds=2)
    assert (own(first, "a"), own(first, "b")) == (near(0.9, 0.2), near(0.95, 0))
    second = play(method, two_clients, linear(1, 0), after=first)
    assert second.weights == near(*plain.weights)  # the global model is FedAvg's
    u, v = first.weights
    assert own(second, "a") == near(0.9 - 0.1 * (0.9 + 0.5 * (0.9 - u)), 0.2 - 0.1 * (-1.2 + 0.5 * (0.2 - v)))


def test_ditto_pays_for_both_passes_and_draws_a_batch_for_each(digits):
    from fedfdp.models.learner import Learner
    from fedfdp.models.losses import cross_entropy
    from fedfdp.privacy.noise.randomness import Seeded
    from fedfdp.training.client import LocalClient

    private = DPSGD(epsilon=20.0, sigma=2.0, q=0.2, clip=0.5)
    method = Ditto(lr=0.5, local_steps=3)
    (event,) = method.events(None, private)
    assert (event.count, event.sigmas) == (6, (2.0,))
    learner = Learner(build("linear", input_shape=digits.input_shape, outputs=10, seed=1), cross_entropy)
    client = LocalClient(digits.clients[0], learner, privacy=private, randomness=Seeded(0), round=0)
    from fedfdp.algorithms.base import Broadcast

    method.local(Broadcast(0, learner.initial()), method.memory(), client)
    assert len(client.released) == 6
    drawn = [tuple(client.poisson(step).tolist()) for step in range(6)]
    assert len(set(drawn)) == 6


def test_a_budget_buys_ditto_half_the_rounds(digits):
    """ε = 3 at σ = 2: what FedAvg has rounds for, Ditto has half of."""
    from fedfdp.training.budget import resolve_privacy

    private = DPSGD(epsilon=3.0, delta=1e-5, sigma=2.0, q=0.1, clip=1.0, accountant="rdp")
    one, both = (resolve_privacy(private, method, None)[1] for method in (FedAvg(), Ditto()))
    assert both == one // 2


@pytest.mark.parametrize("method", [LocalOnly(lr=0.5), MRMTL(lr=0.5), Ditto(lr=0.5)], ids=lambda m: m.name)
def test_clients_are_judged_by_their_own_models_which_the_run_keeps(digits, tmp_path, method):
    model = build("linear", input_shape=digits.input_shape, outputs=10, seed=1)
    result = fedfdp.train(model, digits, algorithm=method, rounds=4, out=tmp_path / "run", eval_every=4)
    losses = result.history[-1]["clients"]["loss"]
    for client, found in zip(digits.clients, losses, strict=True):
        net = fedfdp.load(tmp_path / "run", model, holder=client.name)
        x, y = client.test.take()
        assert float(torch.nn.functional.cross_entropy(net(x), y)) == pytest.approx(found, rel=1e-5)
    assert len(set(losses)) == len(losses)
    mean = sum(c.size * loss for c, loss in zip(digits.clients, losses, strict=True)) / sum(digits.sizes)
    assert result.summary["loss"] == pytest.approx(mean, rel=1e-6)


def test_whose_model_is_asked_for_and_is_not_there(digits, tmp_path):
    model = build("linear", input_shape=digits.input_shape, outputs=10, seed=1)
    fedfdp.train(model, digits, algorithm=LocalOnly(lr=0.5), rounds=1, out=tmp_path / "own")
    fedfdp.train(model, digits, algorithm=FedAvg(lr=0.5), rounds=1, out=tmp_path / "plain")
    with pytest.raises(SettingError, match=r"--holder = 'client-O': did you mean 'client-"):
        fedfdp.load(tmp_path / "own", model, holder="client-O")
    with pytest.raises(SettingError, match="keeps no models of holders: its method is fedavg"):
        fedfdp.load(tmp_path / "plain", model, holder="client-0")
