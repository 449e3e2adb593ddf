"""Whole rounds of two clients and two weights, worked out on paper.

w = (1, 0), loss (w·x − y)².  Client a: x = (1, 0), y = 0: loss 1, gradient (2, 0); x = (0, 2), y = 1: loss 1, gradient
(0, −4).  Client b: x = (½, 0), y = 0: loss ¼, gradient (½, 0).  p = (⅔, ⅓).  F(w_0) = ½, λ = 0.4, so s = 1.2, 1.2, 0.9.
C = 1, σ = 2, every noise value 0.1: 0.2 is added to each coordinate.  q = 1, η = ½.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfdp.algorithms import FedAvg, FedFair, FedFDP
from fedfdp.algorithms.base import Algorithm, Population
from fedfdp.data import Federation
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.client import LocalClient
from support import Given

PRIVATE = DPSGD(delta=1e-5, epsilon=100.0, sigma=2.0, sigma_loss=5.0, q=1.0, clip=1.0)
FAIR = FedFDP(lr=0.5, lam=0.4, coefficients="paper", loss_clip=0.8, server_lam=0.0, smoothing=0.0, initial_loss=0.5)


def start() -> Learner:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0]]))
    return Learner(model, squared_error)


def play(algorithm: Algorithm, federation: Federation, privacy: DPSGD | None, noise: float = 0.1):
    """One round: the new state, the uploads and the clients' new memories."""
    learner, randomness = start(), Given(noise)
    state = algorithm.init(learner.initial(), Population(2, 3, 1, None), privacy)
    broadcast, uploads, memories = algorithm.broadcast(state), [], []
    for data in federation.clients:
        client = LocalClient(data, learner, privacy=privacy, randomness=randomness, round=0)
        upload, memory = algorithm.local(broadcast, algorithm.memory(), client)
        uploads.append(upload)
        memories.append(memory)
    return algorithm.aggregate(state, uploads), uploads, memories


def flat(weights) -> list[float]:
    return weights["weight"].flatten().tolist()


@pytest.mark.parametrize(
    ("form", "a", "b", "after"),
    [
        # c = ½, ¼ | 0.9: a (1, −1), b (0.45, 0); + 0.2; / 2 | 1
        ("paper", (-0.3, 0.2), (-0.325, -0.1), (1 - 0.2 - 0.325 / 3, 0.4 / 3 - 0.1 / 3)),
        # κ = 2, c = ½·0.6, ¼·0.6 | 1·0.45: a (0.6, −0.6), b (0.225, 0)
        ("bounded", (-0.2, 0.1), (-0.2125, -0.1), (1 - 0.4 / 3 - 0.2125 / 3, 0.2 / 3 - 0.1 / 3)),
        # γ = ½, c = 0.6/2.5, 0.6/4.5 | 0.45/1: a (0.48, −0.5333), b (0.225, 0)
        ("automatic", (-0.17, 0.25 / 3), (-0.2125, -0.1), (1 - 0.34 / 3 - 0.2125 / 3, 0.5 / 9 - 0.1 / 3)),
    ],
)
def test_fedfdp_round_of_each_form(two_clients, form, a, b, after):
    state, uploads, _ = play(replace(FAIR, coefficients=form, gamma=0.5), two_clients, PRIVATE)
    assert flat(uploads[0].update) == pytest.approx(a, abs=1e-6)
    assert flat(uploads[1].update) == pytest.approx(b, abs=1e-6)
    assert flat(state.weights) == pytest.approx(after, abs=1e-6)


def test_fedfdp_global_loss(two_clients):
    # a: (0.8 + 0.8 + 5·0.8·0.1)/2, b: 0.25 + 0.4; F = ⅔·1 + ⅓·0.65
    state, uploads, _ = play(FAIR, two_clients, PRIVATE)
    assert [upload.loss for upload in uploads] == pytest.approx([1.0, 0.65])
    assert state.loss == pytest.approx(2.65 / 3)


def test_fedfdp_local_loss_is_taken_at_the_noised_weights(two_clients):
    # w_a = (0.7, 0.2): losses 0.49, 0.36; w_b = (0.675, −0.1): 0.3375²
    _, uploads, _ = play(replace(FAIR, loss_at="local"), two_clients, PRIVATE)
    assert [upload.loss for upload in uploads] == pytest.approx([(0.85 + 0.4) / 2, 0.11390625 + 0.4])


def test_fedfdp_loss_bounds(two_clients):
    _, _, fixed = play(FAIR, two_clients, PRIVATE)
    assert [memory.loss_bound for memory in fixed] == [0.8, 0.8]
    _, _, mean = play(replace(FAIR, loss_bound="mean"), two_clients, PRIVATE)
    assert [memory.loss_bound for memory in mean] == pytest.approx([1.0, 0.65])
    # none of a's losses and all of b's are within 0.8; counts + 10·0.1, over n: a ½, b 2 → 1
    _, _, tracked = play(replace(FAIR, loss_bound="quantile", quantile=0.75), two_clients, PRIVATE)
    e = 2.718281828459045
    assert [m.loss_bound for m in tracked] == pytest.approx([0.8 * e ** (0.2 * 0.25), 0.8 * e ** (-0.2 * 0.25)])


def test_fedfdp_gradient_bound_follows_all_clients_counts(two_clients):
    # norms 2, 4 | ½ with C = 1: counts 0 | 1, + 1 of noise, over n: ½, 2; mean ⅔·½ + ⅓·2 = 1
    state, uploads, _ = play(replace(FAIR, clip_bound="quantile", clip_quantile=0.5), two_clients, PRIVATE)
    assert [upload.norms_within for upload in uploads] == pytest.approx([0.5, 2.0])
    assert state.clip_scale == pytest.approx(2.718281828459045 ** (-0.2 * 0.5))


def test_fedfdp_fairness_at_the_server(two_clients):
    # ω = 2·(1 + 1.0 − 0.5) | 1·(1 + 0.65 − 0.5) = 3 | 1.15
    state, _, _ = play(replace(FAIR, server_lam=1.0), two_clients, PRIVATE)
    assert flat(state.weights) == pytest.approx((1 - (0.9 + 1.15 * 0.325) / 4.15, (0.6 - 0.115) / 4.15), abs=1e-6)
    # smoothed half-way to the old F = ½: losses 0.75 | 0.575; clamped to [0.9, 1.2]: ω = 2·1.2 | 1·1.075
    limited = replace(FAIR, server_lam=1.0, smoothing=0.5, server_low=0.9, server_high=1.2)
    state, _, _ = play(limited, two_clients, PRIVATE)
    assert flat(state.weights)[0] == pytest.approx(1 - (2.4 * 0.3 + 1.075 * 0.325) / 3.475, abs=1e-6)
    assert state.loss == pytest.approx((2 * 0.75 + 0.575) / 3)


def test_fedfdp_negative_weight_turns_the_gradient_and_stays_bounded(two_clients):
    # λ = 8: s = 5, 5 | −1; c = ½, ¼ | −min(1, 2): b uploads −η(−½ + 0.2, 0.2)
    _, uploads, _ = play(replace(FAIR, lam=8.0), two_clients, PRIVATE)
    assert flat(uploads[0].update) == pytest.approx((-0.3, 0.2), abs=1e-6)
    assert flat(uploads[1].update) == pytest.approx((0.15, -0.1), abs=1e-6)


def test_fedfdp_without_privacy_weighs_records_and_clips_nothing(two_clients):
    # mean of s·g: a 1.2·(2, −4)/2, b 0.9·(½, 0)
    state, uploads, _ = play(FAIR, two_clients, None)
    assert flat(uploads[0].update) == pytest.approx((-0.6, 1.2), abs=1e-6)
    assert flat(uploads[1].update) == pytest.approx((-0.225, 0.0), abs=1e-6)
    assert state.loss == pytest.approx(2 / 3 * 1 + 1 / 3 * 0.25)


def test_fedfair_round(two_clients):
    # a: mean gradient (1, −2), η = 0.1·1.2, F_a(w_a) = (0.88² + 0.52²)/2; b: η = 0.1·0.9, F_b(w_b) = 0.4775²
    state, uploads, _ = play(FedFair(lr=0.1, lam=0.4, initial_loss=0.5), two_clients, None)
    assert flat(uploads[0].update) == pytest.approx((-0.12, 0.24), abs=1e-6)
    assert flat(uploads[1].update) == pytest.approx((-0.045, 0.0), abs=1e-6)
    assert [upload.loss for upload in uploads] == pytest.approx([0.5224, 0.22800625])
    assert flat(state.weights) == pytest.approx((0.905, 0.16), abs=1e-6)
    assert state.loss == pytest.approx(0.42426875)


def test_fedfair_step_never_turns_round():
    method = FedFair(lr=0.1, lam=2.0)
    assert method.stretch(0.0, 1.0) == 0.0  # 1 + 2·(0 − 1) = −1
    assert method.stretch(float("inf"), 1.0) == 0.0
    assert method.stretch(float("nan"), 1.0) == 0.0


def test_fedavg_round_plain_and_private(two_clients):
    state, _, _ = play(FedAvg(lr=0.1), two_clients, None)
    assert flat(state.weights) == pytest.approx((1 - 0.2 / 3 - 0.05 / 3, 0.4 / 3), abs=1e-6)
    # clipped to C = 1: a (1, −1), b (½, 0); + 0.2
    _, uploads, _ = play(FedAvg(lr=0.1), two_clients, PRIVATE)
    assert flat(uploads[0].update) == pytest.approx((-0.06, 0.04), abs=1e-6)
    assert flat(uploads[1].update) == pytest.approx((-0.07, -0.02), abs=1e-6)


def test_fedfdp_without_fairness_is_private_fedavg(two_clients):
    for form in ("paper", "bounded"):
        fair, _, _ = play(replace(FAIR, lam=0.0, coefficients=form), two_clients, PRIVATE)
        plain, _, _ = play(FedAvg(lr=0.5), two_clients, PRIVATE)
        assert flat(fair.weights) == pytest.approx(flat(plain.weights), abs=1e-7)


def test_two_local_steps(two_clients):
    # b alone, noise 0, C = 10: w 1 → 1 − ½·½ = ¾ → ¾ − ½·(2·(0.375)·½) = 0.5625
    method = FedAvg(lr=0.5, local_steps=2)
    _, uploads, _ = play(method, two_clients, replace(PRIVATE, clip=10.0), noise=0.0)
    assert flat(uploads[1].update) == pytest.approx((0.5625 - 1, 0.0), abs=1e-6)
