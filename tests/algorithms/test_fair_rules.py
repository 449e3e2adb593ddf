"""Rounds of AFL, TERM, PropFair, Semi-VRed, FedMGDA+ and FedFV with three clients, worked out on paper.

w = (0, 0), loss (w·x − y)², η = 0.1, one step. n = (1, 2, 1), so p = (¼, ½, ¼).
a: x = (1, 0), y = 1: loss 1, gradient (−2, 0), update (0.2, 0).
b: x = (0, 1), y = 2, twice: loss 4, gradient (0, −4), update (0, 0.4).
c: x = (1, 0), y = −½: loss ¼, gradient (1, 0), update (−0.1, 0), which is against a's.
"""

from dataclasses import dataclass, replace
from math import log, sqrt

import pytest
import torch

from fedfdp.algorithms import AFL, TERM, ByLoss, FedAvg, FedFV, FedMGDA, PropFair, SemiVRed
from fedfdp.core.errors import SettingError
from fedfdp.core.records import from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.privacy.dpsgd import DPSGD
from rounds import flat, linear, play
from support import Given

HOW = {"lr": 0.1, "local_steps": 1, "smoothing": 0.0, "initial_loss": 2.0}
PRIVATE = DPSGD(epsilon=100.0, sigma=2.0, sigma_loss=5.0, q=1.0, clip=1.0)


@pytest.fixture
def three() -> Federation:
    a = (torch.tensor([[1.0, 0.0]]), torch.tensor([1.0]))
    b = (torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([2.0, 2.0]))
    c = (torch.tensor([[1.0, 0.0]]), torch.tensor([-0.5]))
    return Federation.from_clients({"a": (*a, *a), "b": (*b, *b), "c": (*c, *c)}, classes=None)


def near(*values: float):
    return pytest.approx(values, abs=2e-6)


def only(*names: str):
    return lambda client, round: client in names


def test_the_setting_is_as_described(three):
    played = play(FedAvg(lr=0.1, local_steps=1), three, linear(0, 0))
    assert [flat(upload.update) for upload in played.uploads] == [near(0.2, 0), near(0, 0.4), near(-0.1, 0)]
    heard = play(ByLoss(**HOW), three, linear(0, 0))
    assert heard.state.losses.of == pytest.approx({"a": 1.0, "b": 4.0, "c": 0.25})
    assert heard.state.losses.records == {"a": 1, "b": 2, "c": 1}
    assert (heard.state.losses.mean, heard.state.losses.excess) == pytest.approx((2.3125, 0.5 * 1.6875))


def test_term(three):
    # t = ln 2: weights ¼·2, ½·16, ¼·2^¼
    played = play(TERM(t=log(2), **HOW), three, linear(0, 0))
    a, b, c = 0.5, 8.0, 0.25 * 2**0.25
    assert played.weights == near((0.2 * a - 0.1 * c) / (a + b + c), 0.4 * b / (a + b + c))


def test_term_with_an_enormous_tilt_is_the_worst_client_alone(three):
    assert play(TERM(t=1e6, **HOW), three, linear(0, 0)).weights == near(0, 0.4)
    # where the worst is away, the worst of those that are there: e^(−3 000 000) does not count as nothing
    assert play(TERM(t=1e6, **HOW), three, linear(0, 0), present=only("a", "c")).weights == near(0.2, 0)


def test_term_under_privacy(three):
    # a: min(1, C_l) + σ_l·C_l·0.1 = 0.8 + 0.4; b: (1.6 + 0.4)/2; c: 0.25 + 0.4. Gradients are clipped to norm 1
    method = TERM(t=2.0, loss_clip=0.8, **HOW)
    played = play(method, three, linear(0, 0), privacy=PRIVATE, randomness=Given(0.1))
    assert [upload.loss for upload in played.uploads] == pytest.approx([1.2, 1.0, 0.65])
    weights = [0.25 * 2.718281828**2.4, 0.5 * 2.718281828**2.0, 0.25 * 2.718281828**1.3]
    updates = [(0.08, -0.02), (-0.01, 0.09), (-0.12, -0.02)]  # −η·(±1 + 0.2)/n
    sums = [sum(omega * u[k] for omega, u in zip(weights, updates, strict=True)) for k in (0, 1)]
    assert played.weights == near(*(total / sum(weights) for total in sums))


def test_propfair(three):
    # M = 5: weights ¼/4, ½/1, ¼/4.75
    played = play(PropFair(baseline=5.0, **HOW), three, linear(0, 0))
    total = 1 / 16 + 1 / 2 + 1 / 19
    assert played.weights == near((0.2 / 16 - 0.1 / 19) / total, 0.2 / total)
    # M = 4.1 is only 0.1 above b's loss: it counts as ε = 0.2. a: ¼/3.1, c: ¼/3.85
    played = play(PropFair(baseline=4.1, **HOW), three, linear(0, 0))
    total = 0.25 / 3.1 + 0.5 / 0.2 + 0.25 / 3.85
    assert played.weights == near((0.2 * 0.25 / 3.1 - 0.1 * 0.25 / 3.85) / total, 0.4 * 2.5 / total)


def test_propfair_wants_a_loss_that_is_worse_than_any():
    with pytest.raises(SettingError, match=r"algorithm\.baseline = 2\.5.*above loss_clip, which is 2\.5"):
        PropFair(baseline=2.5)


def test_semivred(three):
    # F = 2.3125, Σ p(F_i − F)₊ = ½·1.6875. β = ½: 1 + (F_i − F)₊ − 0.84375 = 0.15625, 1.84375, 0.15625
    played = play(SemiVRed(beta=0.5, **HOW), three, linear(0, 0))
    assert played.weights == near(0.15625 * (0.25 * 0.2 - 0.25 * 0.1), 1.84375 * 0.5 * 0.4)


def test_semivred_never_counts_a_client_against_itself(three):
    # β = 5: 1 − 8.4375 < 0 for a and c; b is left
    assert play(SemiVRed(beta=5.0, **HOW), three, linear(0, 0)).weights == near(0, 0.4)


def test_afl_climbs_after_the_step(three):
    # round 1 with ω = p: (¼·0.2 − ¼·0.1, ½·0.4). ω + 0.1·F = (0.35, 0.9, 0.275), less 0.525/3
    played = play(AFL(mixture_rate=0.1, **HOW), three, linear(0, 0))
    assert played.weights == near(0.025, 0.2)
    assert played.state.mixture == pytest.approx({"a": 0.175, "b": 0.725, "c": 0.1})
    again = play(AFL(mixture_rate=0.1, **HOW), three, linear(0, 0), after=played)
    # updates at (0.025, 0.2): a 0.2·0.975, b 0.2·1.8, c −0.2·0.525
    assert again.weights == near(0.025 + 0.175 * 0.195 - 0.1 * 0.105, 0.2 + 0.725 * 0.36)


def test_afl_leaves_to_a_client_that_is_away_what_it_has(three):
    method = AFL(mixture_rate=1.0, **HOW)
    first = play(method, three, linear(0, 0), present=only("a", "b"))  # p of them: ¾ in all
    assert first.weights == near(0.25 * 0.2 / 0.75, 0.5 * 0.4 / 0.75)
    assert first.state.mixture == pytest.approx({"a": 0.0, "b": 0.75})  # (1.25, 4.5) onto a sum of ¾
    second = play(method, three, linear(0, 0), after=first, present=only("c"))
    assert flat(second.uploads[0].update) == near(-0.2 * (0.5 + 0.2 / 3), 0)
    assert second.weights == near(0.2 / 3 - 0.2 * (0.5 + 0.2 / 3), 0.8 / 3)  # alone, it counts in full
    assert sum(second.state.mixture.values()) == pytest.approx(1.0)


def test_fedmgda_moves_nowhere_if_nobody_can_gain_without_another_losing(three):
    # any mixture: ½a + ½c of the normalised updates is 0
    played = play(FedMGDA(lr=0.1, local_steps=1, distance=1.0), three, linear(0, 0))
    assert played.weights == near(0, 0)


def test_fedmgda_within_a_tenth_of_the_shares(three):
    # λ_b at its least, 0.4, and λ_a = λ_c = 0.3; over lengths 0.2, 0.4, 0.1: 1.5, 1, 3
    played = play(FedMGDA(lr=0.1, local_steps=1, distance=0.1), three, linear(0, 0))
    assert played.weights == near((1.5 * 0.2 - 3 * 0.1) / 5.5, 0.4 / 5.5)


def test_fedmgda_takes_off_what_noise_adds(three):
    # K·d·(σC/q)² = 1·2·4; a's update is (0.08, −0.02): ‖·‖² = 0.0068, less 8·0.1²; so it counts as noise·√(2/2)
    method = FedMGDA(lr=0.1, local_steps=1, distance=0.0)
    played = play(method, three, linear(0, 0), privacy=PRIVATE, randomness=Given(0.1))
    assert played.state.noise == pytest.approx(8.0)
    squares = [0.08, 0.02, 0.08]  # 8·0.01/n²: all updates are shorter than the noise that is expected
    omega = [share / sqrt(square) for share, square in zip([0.25, 0.5, 0.25], squares, strict=True)]
    updates = [(0.08, -0.02), (-0.01, 0.09), (-0.12, -0.02)]
    sums = [sum(weight * u[k] for weight, u in zip(omega, updates, strict=True)) for k in (0, 1)]
    assert played.weights == near(*(total / sum(omega) for total in sums))
    quiet = replace(PRIVATE, sigma=0.2)  # 8·0.01·0.01: far less than the updates
    found = play(method, three, linear(0, 0), privacy=quiet, randomness=Given(0.1))
    updates = [(0.098, -0.002), (-0.001, 0.099), (-0.102, -0.002)]
    true = [u**2 + v**2 - 0.0008 / n**2 for (u, v), n in zip(updates, (1, 2, 1), strict=True)]
    omega = [share / sqrt(square) for share, square in zip([0.25, 0.5, 0.25], true, strict=True)]
    sums = [sum(weight * u[k] for weight, u in zip(omega, updates, strict=True)) for k in (0, 1)]
    assert found.weights == near(*(total / sum(omega) for total in sums))


def test_fedfv(three):
    # c's update without what is against a's: 0; a's without what is against c's: 0; b's stays. ½·(0, 0.4) is then given
    # the length of the plain mean (0.025, 0.2)
    played = play(FedFV(**HOW), three, linear(0, 0))
    assert played.weights == near(0, sqrt(0.025**2 + 0.2**2))


def test_fedfv_keeps_the_worst_whole(three):
    # α = ½ keeps the last two by loss, a and b: (¼·0.2, ½·0.4) and c's is taken out
    played = play(FedFV(keep=0.5, **HOW), three, linear(0, 0))
    length = sqrt(0.025**2 + 0.2**2) / sqrt(0.05**2 + 0.2**2)
    assert played.weights == near(0.05 * length, 0.2 * length)


def test_fedfv_takes_out_what_is_against_a_client_that_is_away(three):
    # c alone, then a and b: from w = (−0.1, 0) a's update is (0.22, 0), b's (0, 0.4); p = (⅓, ⅔). What is against c's
    # last update, (−0.1, 0), is the first number; the length is that of the plain mean.
    first = play(FedFV(past=1, **HOW), three, linear(0, 0), present=only("c"))
    assert first.weights == near(-0.1, 0)
    length = sqrt(0.22**2 + 0.8**2) / 3
    both = only("a", "b")
    assert play(FedFV(past=1, **HOW), three, linear(0, 0), present=both, after=first).weights == near(-0.1, length)
    plain = play(FedFV(**HOW), three, linear(0, 0), present=only("c"))
    aside = play(FedFV(**HOW), three, linear(0, 0), present=both, after=plain)
    assert aside.weights == near(-0.1 + 0.22 / 3, 0.8 / 3)


@pytest.mark.parametrize(("past", "counts"), [(1, False), (2, True)])
def test_fedfv_forgets_a_client_after_so_many_rounds(three, past, counts):
    # c, then b, then a alone: a's update would be along (1, 0), and c's was against it two rounds ago
    method = FedFV(past=past, **HOW)
    played = play(method, three, linear(0, 0), present=lambda name, round: name == "cba"[round], rounds=2)
    assert sorted(played.state.sent) == (["b", "c"] if counts else ["b"])
    before = played.weights
    state = from_bytes(method.State, to_bytes(played.state))  # as a checkpoint keeps it
    after = play(method, three, linear(0, 0), present=only("a"), after=replace(played, state=state)).weights
    assert after == (near(*before) if counts else near(before[0] + 0.22, before[1]))


@pytest.mark.parametrize(
    "method",
    [TERM(t=0.0, **HOW), SemiVRed(beta=0.0, **HOW), AFL(mixture_rate=0.0, **HOW)],
    ids=lambda method: method.name,
)
def test_without_fairness_it_is_fedavg(three, method):
    plain = play(FedAvg(lr=0.1, local_steps=1), three, linear(0, 0), rounds=3)
    assert play(method, three, linear(0, 0), rounds=3).weights == near(*plain.weights)


OBJECTIVES = {
    "term": (TERM(t=0.7, **HOW), lambda p, f: (p * (0.7 * f).exp()).sum().log() / 0.7),
    "propfair": (PropFair(baseline=6.0, **HOW), lambda p, f: -(p * (6.0 - f).log()).sum()),
    "semivred": (SemiVRed(beta=0.4, **HOW), lambda p, f: p @ f + 0.4 * (p * (f - p @ f).clamp(min=0) ** 2).sum()),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_rule_steps_along_the_gradient_of_its_papers_objective(three, name):
    """∂(objective)/∂F_i, by autograd, is ω_i up to one factor: so one step is along the gradient of the objective."""
    method, objective = OBJECTIVES[name]
    losses = torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64, requires_grad=True)
    objective(torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64), losses).backward()
    a, b, c = (losses.grad / losses.grad.sum()).tolist()
    assert play(method, three, linear(0, 0)).weights == near(0.2 * a - 0.1 * c, 0.4 * b)


def test_losses_are_smoothed_from_what_was_known(three):
    # 0.9·2 + 0.1·F_i at first: nobody is far above the mean after one noisy round
    played = play(ByLoss(**{**HOW, "smoothing": 0.9}), three, linear(0, 0))
    assert played.state.losses.of == pytest.approx({"a": 1.9, "b": 2.2, "c": 1.825})


def test_smoothing_of_one_would_never_hear_anything():
    with pytest.raises(SettingError, match=r"algorithm\.smoothing = 1\.0"):
        TERM(smoothing=1.0)


def test_a_rule_of_your_own_is_one_function(three):
    @dataclass(frozen=True, kw_only=True)
    class Squared(ByLoss):
        def fair_weight(self, loss, losses):
            return loss**2

    played = play(Squared(**HOW), three, linear(0, 0))
    total = 0.25 + 0.5 * 16 + 0.25 / 16
    assert played.weights == near((0.05 - 0.1 * 0.25 / 16) / total, 0.4 * 8 / total)
