"""One test for each known fault of the authors' public code: none of them is here."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfdp.algorithms import FedAvg, FedFair, FedFDP
from fedfdp.data import Federation
from fedfdp.fairness.bounds import mean_bound
from fedfdp.fairness.coefficients import PaperClip, PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.accounting import epsilon, max_count
from fedfdp.privacy.accounting.events import repeat
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.runs import config
from fedfdp.training.client import LocalClient
from support import Given

PRIVATE = DPSGD(delta=1e-5, epsilon=3.52, sigma=2.0, sigma_loss=5.0, q=0.5, clip=1.0)


def client_of(records: int, randomness: Given, privacy: DPSGD | None = PRIVATE) -> LocalClient:
    x, y = torch.ones(records, 1), torch.zeros(records)
    data = Federation.from_clients({"a": (x, y, x, y), "b": (x, y, x, y)}, classes=None).clients[0]
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)  # loss 1, gradient 2 for every record
    return LocalClient(data, Learner(model, squared_error), privacy=privacy, randomness=randomness, round=0)


def gradient(client: LocalClient) -> float:
    batch = next(iter(client.batches(steps=1, epochs=None, batch_size=64)))
    return float(batch.release(client.learner.initial(), coefficient=PlainClip(1.0)).gradient["weight"])


def test_nothing_accumulates_between_rounds():
    client = client_of(8, Given())
    batches = client.batches(steps=3, epochs=None, batch_size=64)
    sums = [float(b.release(client.learner.initial(), coefficient=PlainClip(1.0)).gradient["weight"]) for b in batches]
    assert sums == [2.0, 2.0, 2.0]  # eight clipped to 1, over q·n = 4, every time anew


def test_the_fair_step_without_privacy_changes_the_step():
    def moved(lam: float) -> float:
        method = FedFair(lr=0.1, lam=lam, initial_loss=0.5)
        client = client_of(4, Given(), privacy=None)
        weights = client.learner.initial()
        from fedfdp.algorithms.base import Population

        broadcast = method.broadcast(method.init(weights, Population(2, 8, 4, None), None))
        upload, _ = method.local(broadcast, method.memory(), client)
        return float(upload.update["weight"])

    assert moved(0.0) == pytest.approx(-0.2)
    assert moved(0.4) == pytest.approx(-0.2 * 1.2)


def test_a_negative_coefficient_is_flipped_and_clipped():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    x, y = torch.tensor([[10.0]]), torch.tensor([0.0])  # loss 100, gradient 200
    wanted = PaperClip(clip=1.0, lam=1.0, reference=1000.0)  # s = 1 + (100 − 1000) = −899
    total = clipped_sum(model, squared_error, x, y, clip=1.0, coefficient=wanted)
    assert float(total.grads["weight"]) == pytest.approx(-1.0)


def test_loss_uploads_are_paid_for():
    fair, plain = FedFDP().events(None, PRIVATE), FedAvg().events(None, PRIVATE)
    assert fair[0].sigmas == (2.0, 5.0)
    assert plain[0].sigmas == (2.0,)
    cost = [epsilon(repeat(events, 100), 1e-5) for events in (fair, plain)]
    assert cost[0] > 1.05 * cost[1]


def test_the_rounds_stay_within_the_budget():
    settings = config.load("paper-mnist").resolved()
    step = settings.algorithm.events(None, settings.privacy)
    assert epsilon(repeat(step, settings.rounds), 1e-5) <= 3.52 < epsilon(repeat(step, settings.rounds + 1), 1e-5)
    assert settings.rounds == max_count(step, 3.52, 1e-5) == 763


def test_the_divisor_is_the_expected_batch():
    assert gradient(client_of(8, Given())) == pytest.approx(8 / (0.5 * 8))
    assert gradient(client_of(200, Given())) == pytest.approx(200 / (0.5 * 200))  # not 200/64


def test_an_empty_batch_still_releases_noise_and_is_counted():
    client = client_of(8, Given(noise=0.5, empty=True))
    assert gradient(client) == pytest.approx(2.0 * 1.0 * 0.5 / 4)  # σ·C·0.5 over q·n
    assert len(client.released) == 1


def test_delta_is_what_the_paper_says():
    for name in ("default", "paper-mnist", "paper-fashion", "paper-cifar10"):
        assert config.load(name).privacy.delta == 1e-5


def test_the_loss_bound_never_sticks_at_zero():
    assert mean_bound(-3.0, floor=0.01, ceiling=10.0) == 0.01
    method = FedFDP(lr=1.0, loss_bound="mean", initial_loss=1.0)
    client = client_of(8, Given(noise=-100.0), replace(PRIVATE, q=1.0))
    from fedfdp.algorithms.base import Population

    broadcast = method.broadcast(method.init(client.learner.initial(), Population(2, 16, 8, None), client.privacy))
    upload, memory = method.local(broadcast, method.memory(), client)
    assert upload.loss < 0 < memory.loss_bound
