"""What is chosen where settings are left out. Expected numbers are worked out by hand from the formulas in the docs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import fedfdp
from fedfdp import DPSGD, FedAvg, FedFDP, ServerOptimizer
from fedfdp.core.errors import SettingError
from fedfdp.models.tasks import TASKS
from fedfdp.privacy.accounting import epsilon as epsilon_of
from fedfdp.privacy.accounting.events import repeat
from fedfdp.training.budget import unspent
from fedfdp.training.defaults import settle
from fedfdp.training.facts import PublicFacts
from fedfdp.training.strength import Strength

# 3 holders with 258 records of 7 inputs, 3 classes: 24 weights. A record's usual length is √(1 + 7/3).
TABLE = PublicFacts(sizes=(39, 93, 126), classes=3, outputs=3, weights=24, layers=1)
LENGTH = math.sqrt(1 + 7 / 3)


def chosen(facts=TABLE, method=None, privacy=None, server=None, rounds=None, **more):
    return settle(facts, method or FedFDP(), privacy, server or ServerOptimizer(), rounds, **more)


def test_epsilon_alone_is_enough_and_is_used_up():
    s = chosen(privacy=DPSGD(epsilon=3.0))
    p = s.privacy
    assert (p.delta, p.q, s.rounds) == (1e-5, 1.0, 100)
    assert p.sigma_loss == pytest.approx(5 * p.sigma)
    # 100 Gaussians with a loss of 5σ beside each are one of μ = 10·√(1 + 1/25)/σ, whose δ(ε) is known in closed form.
    mu = 10 * math.sqrt(1.04) / p.sigma
    delta = norm.cdf(mu / 2 - 3 / mu) - math.exp(3) * norm.cdf(-mu / 2 - 3 / mu)
    assert 0.998e-5 < delta <= 1e-5
    assert {c.setting for c in s.choices} >= {"privacy.q", "privacy.sigma", "rounds", "algorithm.lr", "privacy.clip"}
    assert all(c.why for c in s.choices)


def test_the_step_by_hand():
    s = chosen(privacy=DPSGD(epsilon=3.0))
    assert s.privacy.clip == pytest.approx(0.3 * LENGTH, rel=5e-3)
    assert (s.server.optimizer, s.server.average) == ("momentum", 0.95)
    # η·C·rounds with momentum is at most 4·N·(√T·q/σ)/(√3 holders·length): the noise allows no more
    way = 4 * 258 * (10 / s.privacy.sigma) / (math.sqrt(3) * LENGTH)
    assert s.algorithm.lr * s.privacy.clip * 100 * 10 == pytest.approx(way, rel=1e-2)
    # with many records the step is 1/(½·length), whatever the noise
    many = replace(TABLE, sizes=(39_000, 93_000, 126_000))
    assert chosen(many, privacy=DPSGD(epsilon=3.0, q=1.0)).algorithm.lr == pytest.approx(2 / LENGTH, rel=5e-3)
    # and without momentum the same: the way is then ten times shorter
    plain = chosen(many, privacy=DPSGD(epsilon=3.0, q=1.0), server=ServerOptimizer(optimizer="none"))
    assert plain.algorithm.lr == pytest.approx(2 / LENGTH, rel=5e-3)


def test_features_by_name_are_longer_than_columns():
    """7 inputs of variance 1 and a constant: √8, so C is 0.3·√8; the way that noise allows is shorter."""
    mapped = chosen(replace(TABLE, normalised=True), privacy=DPSGD(epsilon=3.0))
    assert mapped.privacy.clip == pytest.approx(0.3 * math.sqrt(8), rel=5e-3)
    columns = chosen(privacy=DPSGD(epsilon=3.0))
    ways = [s.algorithm.lr * s.privacy.clip for s in (mapped, columns)]
    assert ways[0] / ways[1] == pytest.approx(LENGTH / math.sqrt(8), rel=2e-2)


def test_fairness_only_as_far_as_released_losses_tell():
    s = chosen(privacy=DPSGD(epsilon=3.0))
    # a holder's loss has noise of 5σ·2.5/n, smoothed by 0.9; the smallest holder makes out most of the mean square
    square = (39**-2 + 93**-2 + 126**-2) / 3
    noise = 5 * s.privacy.sigma * 2.5 * math.sqrt(square) * math.sqrt(0.1 / 1.9)
    assert s.algorithm.server_lam == pytest.approx(0.3 / noise, rel=2e-2)
    many = replace(TABLE, sizes=(39_000, 93_000, 126_000))
    assert chosen(many, privacy=DPSGD(epsilon=3.0, q=1.0)).algorithm.server_lam == 2.0


def test_regression_gets_its_first_loss_from_the_declared_range():
    facts = replace(TABLE, classes=None, outputs=1, weights=8, scaled=True)
    s = chosen(facts, privacy=DPSGD(epsilon=3.0))
    assert s.algorithm.initial_loss == pytest.approx(1 / 3, abs=1e-3)
    assert chosen(replace(facts, scaled=False), privacy=DPSGD(epsilon=3.0)).algorithm.initial_loss is None
    assert chosen(privacy=DPSGD(epsilon=3.0)).algorithm.initial_loss is None  # ln(classes)


@pytest.mark.parametrize(
    ("records", "weights", "q", "rounds"),
    [
        (258, 24, 1.0, 100),
        (39_000, 24, 1.0, 100),  # 20,000 of 39,000 is more than half: all of them
        (100_000, 24, 0.2, 224),
        (1_000_000, 24, 0.02, 400),
        (52_500, 39_700, 0.0476, 400),  # a linear head on image features: batches of 2,500
    ],
)
def test_batches_and_rounds(records, weights, q, rounds):
    s = chosen(
        replace(TABLE, sizes=(records // 2, records // 2), weights=weights),
        privacy=DPSGD(epsilon=3.0, accountant="rdp"),
    )
    assert (s.privacy.q, s.rounds) == (pytest.approx(q, rel=2e-2), rounds)


def test_what_is_given_stays():
    privacy = DPSGD(epsilon=3.0, delta=1e-6, sigma=30.0, q=0.5, clip=0.7, sigma_loss=99.0)
    method, server = FedFDP(lr=0.3, server_lam=7.0, initial_loss=0.2), ServerOptimizer(optimizer="adam", average=0.5)
    s = chosen(method=method, privacy=privacy, server=server, rounds=11)
    assert (s.algorithm, s.privacy, s.server, s.rounds, s.choices) == (method, privacy, server, 11, ())


def test_a_given_step_size_is_the_whole_step():
    s = chosen(method=FedFDP(lr=16.0), privacy=DPSGD(epsilon=3.0))
    assert (s.privacy.clip, s.server.optimizer, s.server.average) == (0.1, "none", 0.0)


@pytest.mark.parametrize("left_out", ["epsilon", "sigma", "rounds"])
def test_of_epsilon_sigma_and_rounds_the_one_left_out_is_solved(left_out):
    given = {"epsilon": 2.0, "sigma": 20.0, "rounds": 40}
    del given[left_out]
    rounds = given.pop("rounds", None)
    s = chosen(method=FedAvg(lr=1.0), privacy=DPSGD(q=1.0, clip=1.0, **given), rounds=rounds)
    cost = epsilon_of(repeat(s.algorithm.events(None, s.privacy), s.rounds), 1e-5)
    assert cost <= s.privacy.epsilon
    assert cost == pytest.approx(s.privacy.epsilon, rel=2e-2)
    if left_out == "rounds":
        more = epsilon_of(repeat(s.algorithm.events(None, s.privacy), s.rounds + 1), 1e-5)
        assert more > 2.0


def test_a_given_sigma_gets_a_q_that_leaves_rounds_to_train():
    s = chosen(privacy=DPSGD(epsilon=3.0, sigma=2.0))
    assert s.privacy.sigma == 2.0
    assert s.privacy.q < 0.2
    assert 100 <= s.rounds <= 200


def test_without_epsilon_nothing_can_be_chosen():
    with pytest.raises(SettingError, match=r"privacy\.epsilon = None: left out together with sigma and rounds"):
        chosen(privacy=DPSGD())


def test_without_sizes_what_needs_them_is_asked_for():
    with pytest.raises(SettingError, match=r"privacy\.q = None: chosen from the sizes of the records"):
        chosen(None, privacy=DPSGD(epsilon=3.0))


def test_delta_is_below_one_over_the_largest_holder():
    large = replace(TABLE, sizes=(1000, 250_000))
    assert chosen(large, privacy=DPSGD(epsilon=3.0, accountant="rdp")).privacy.delta == 1e-6
    with pytest.raises(SettingError, match=r"privacy\.delta = 0\.1: not below 1/n = 0\.0079"):
        chosen(privacy=DPSGD(epsilon=3.0, delta=0.1))
    with pytest.raises(SettingError, match=r"privacy\.delta = 1e-05"):
        chosen(large, privacy=DPSGD(epsilon=3.0, delta=1e-5))


def test_several_layers_take_the_way_of_the_preset():
    facts = PublicFacts(sizes=(5250,) * 10, classes=10, outputs=10, weights=26_010, layers=4)
    s = chosen(facts, privacy=DPSGD(epsilon=3.52, sigma=2.0, q=0.05))
    assert s.privacy.clip == 0.1
    assert s.server.optimizer == "none"
    assert s.algorithm.lr == pytest.approx(16, rel=0.3)  # what was measured for this model and these sizes


def test_strength_by_hand():
    s = chosen(privacy=DPSGD(epsilon=3.0))
    each = 10 / s.privacy.sigma / math.sqrt(24)
    strength = Strength.of(TABLE, s.algorithm, s.privacy, s.rounds)
    assert strength.by_client == pytest.approx((39 * each, 93 * each, 126 * each))
    assert strength.whole == pytest.approx(258 * each / math.sqrt(3))
    assert strength.warning(3.0) == ""
    less = chosen(privacy=DPSGD(epsilon=0.1))
    weak = Strength.of(TABLE, less.algorithm, less.privacy, less.rounds)
    assert weak.warning(0.1).startswith("expect nothing to be learnt: the signal is")
    assert "raise epsilon from 0.1 to about" in weak.warning(0.1)


def test_unspent_budget_is_said():
    privacy = DPSGD(epsilon=3.0, delta=1e-5, q=1.0, sigma=40.0, clip=1.0, sigma_loss=200.0)
    said = unspent(privacy, FedFDP(lr=1.0, server_lam=0.0), 100)
    cost = epsilon_of(repeat(FedFDP(lr=1.0).events(None, privacy), 100), 1e-5)
    assert said.startswith(f"{cost / 3:.0%} of epsilon = 3 used: ")
    # with σ_l fixed at 200: 1/σ² = 1/14.182² + … of the solved plan above, so a little less than 14.2
    assert "sigma = 13.9" in said or "sigma = 14" in said
    solved = chosen(privacy=DPSGD(epsilon=3.0))
    assert unspent(solved.privacy, solved.algorithm, solved.rounds) == ""


def test_facts_are_counts_alone():
    class Counted:
        """All that is public; whatever else is asked for is an AttributeError."""

        names, sizes, classes, outputs, unit = ("a", "b"), (5, 0), 3, 3, "record"
        task = TASKS["classification"]

    model = nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 3))
    model[0].requires_grad_(False)
    assert PublicFacts.of(model, Counted()) == PublicFacts((5,), 3, 3, 24, 1)
    assert PublicFacts.of(model, Counted()).length == pytest.approx(LENGTH)


def test_python_needs_no_more_than_epsilon():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (900, 4)).astype(np.float32)
    y = (x @ np.array([2.0, -1.0, 1.0, 0.0]) > 0).astype(np.int64)
    clients = fedfdp.Federation.from_clients({"a": (x[:300], y[:300]), "b": (x[300:], y[300:])})
    model = nn.Linear(4, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    summary = fedfdp.train(model, clients, privacy=DPSGD(epsilon=3.0)).summary
    assert 2.9 < summary["epsilon"] <= 3.0
    assert summary["accuracy"] > 0.9
