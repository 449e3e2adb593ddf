"""Rounds of FedProx, SCAFFOLD, FedDyn, q-FFL and ALI-DPFL worked out on paper.

The setting is that of test_by_hand.py: w = (u, v) from (1, 0). Mean gradients: a (u, 4v − 2), b (u/2, 0); losses: a
(u² + (2v − 1)²)/2, b u²/4; p = (⅔, ⅓). Private: q = 1, a batch is all records; 0.2 is added to each coordinate.
"""

from dataclasses import replace

import pytest

from fedfdp.algorithms import ALIDPFL, QFFL, FedAvg, FedDyn, FedProx, Scaffold
from fedfdp.algorithms.local_steps import Estimates, Terms, next_steps
from fedfdp.core.errors import SettingError
from fedfdp.privacy.dpsgd import DPSGD
from rounds import flat, linear, play, population
from support import Given

PRIVATE = DPSGD(delta=1e-5, epsilon=100.0, sigma=2.0, sigma_loss=5.0, q=1.0, clip=1.0)
QUIET = replace(PRIVATE, sigma=0.2)
TENTH, ONE = Given(noise=0.1), Given(noise=1.0)


def updates(played) -> list[list[float]]:
    return [flat(upload.update) for upload in played.uploads]


def near(*values: float):
    return pytest.approx(values, abs=2e-6)


def only(name: str):
    return lambda client, round: client == name


# FedProx ------------------------------------------------------------------------------------------------------------


def test_fedprox_pulls_the_second_step_back(two_clients):
    # a: (1, 0) → (0.9, 0.2); then (0.9, −1.2) + ½(−0.1, 0.2).  b: 1 → 0.95; then 0.475 − ½·0.05
    played = play(FedProx(lr=0.1, mu=0.5, local_steps=2), two_clients, linear(1, 0))
    assert updates(played) == [near(-0.185, 0.31), near(-0.095, 0)]
    assert played.weights == near(1 - 0.465 / 3, 0.62 / 3)


def test_fedprox_pulls_after_the_noise(two_clients):
    # a: both records stay clipped to (1, −1): twice (0.6, −0.4); the pull ½(−0.3, 0.2) is neither clipped nor divided
    method = FedProx(lr=0.5, mu=0.5, local_steps=2)
    played = play(method, two_clients, linear(1, 0), privacy=PRIVATE, randomness=TENTH)
    assert updates(played)[0] == near(-0.3 - 0.225, 0.2 + 0.15)


# SCAFFOLD -----------------------------------------------------------------------------------------------------------


def test_scaffold_two_rounds(two_clients):
    method = Scaffold(lr=0.1, local_steps=2)
    first = play(method, two_clients, linear(1, 0))
    assert updates(first) == [near(-0.19, 0.32), near(-0.0975, 0)]
    # c_i = (w_t − w_i)/(2·0.1)
    assert [flat(u.control_change) for u in first.uploads] == [near(0.95, -1.6), near(0.4875, 0)]
    assert flat(first.state.control) == near(2.3875 / 3, -3.2 / 3)

    second = play(method, two_clients, linear(1, 0), after=first)
    u, v = 1 - 0.4775 / 3, 0.64 / 3
    extra = (2.3875 / 3 - 0.95, -3.2 / 3 + 1.6)  # c − c_a
    u1, v1 = u - 0.1 * (u + extra[0]), v - 0.1 * (4 * v - 2 + extra[1])
    u2, v2 = u1 - 0.1 * (u1 + extra[0]), v1 - 0.1 * (4 * v1 - 2 + extra[1])
    assert updates(second)[0] == near(u2 - u, v2 - v)
    control = flat(second.memories["a"].control)
    assert control == near(0.95 - 2.3875 / 3 + (u - u2) / 0.2, -1.6 + 3.2 / 3 + (v - v2) / 0.2)


def test_scaffold_moves_c_by_the_share_of_all_clients(two_clients):
    played = play(Scaffold(lr=0.1, local_steps=2), two_clients, linear(1, 0), present=only("b"))
    assert played.weights == near(1 - 0.0975, 0)  # the model: the mean over those that took part
    assert flat(played.state.control) == near(0.4875 / 3, 0)


def test_scaffold_builds_its_control_from_the_noised_update(two_clients):
    played = play(Scaffold(lr=0.5), two_clients, linear(1, 0), privacy=PRIVATE, randomness=TENTH)
    # one step: c_i is the noised gradient, a (1.2, −0.8)/2, b (0.5 + 0.2, 0.2)
    assert [flat(m.control) for m in played.memories.values()] == [near(0.6, -0.4), near(0.7, 0.2)]
    again = play(
        Scaffold(lr=0.5), two_clients, linear(1, 0), privacy=PRIVATE, randomness=Given(0.0, empty=True), after=played
    )
    # empty batches release 0: what is left is −η(c − c_i), with c = (1.9/3, −0.2)
    assert updates(again) == [near(-0.5 * (1.9 / 3 - 0.6), -0.1), near(-0.5 * (1.9 / 3 - 0.7), 0.2)]


# FedDyn -------------------------------------------------------------------------------------------------------------


def test_feddyn_two_rounds_the_second_without_a(two_clients):
    method = FedDyn(lr=0.1, alpha=0.5, local_steps=2)
    first = play(method, two_clients, linear(1, 0))
    assert updates(first) == [near(-0.185, 0.31), near(-0.095, 0)]  # as FedProx while h_i = 0
    assert flat(first.memories["a"].h) == near(0.0925, -0.155)
    assert flat(first.state.h) == near(0.0775, -0.31 / 3)
    assert first.weights == near(1 - 0.155 - 0.155, 1.24 / 3)  # Σ p_i w_i − h/α

    # b from 0.69, h_b = 0.0475: 0.345 − 0.0475; then 0.330125 − 0.0475 − ½·0.02975
    second = play(method, two_clients, linear(1, 0), after=first, present=only("b"))
    assert updates(second) == [near(-0.056525, 0)]
    assert flat(second.memories["b"].h) == near(0.0757625, 0)
    assert second.memories["a"] is first.memories["a"]
    h = 0.0775 + 0.5 * 0.056525 / 3
    assert flat(second.state.h) == near(h, -0.31 / 3)
    assert second.weights == near(0.69 - 0.056525 - 2 * h, 0.62)


def test_feddyn_builds_its_term_from_the_noised_update(two_clients):
    method = FedDyn(lr=0.5, alpha=0.2)
    played = play(method, two_clients, linear(1, 0), privacy=PRIVATE, randomness=TENTH)
    assert [flat(m.h) for m in played.memories.values()] == [near(0.06, -0.04), near(0.07, 0.02)]
    nothing = Given(0.0, empty=True)
    again = play(method, two_clients, linear(1, 0), privacy=PRIVATE, randomness=nothing, after=played)
    assert updates(again) == [near(0.03, -0.02), near(0.035, 0.01)]  # η·h_i


# q-FFL --------------------------------------------------------------------------------------------------------------


def test_qffl_round(two_clients):
    # F = 1 | ¼, L(w_t − w_i) = (1, −2) | (½, 0); q_f = 2: Δ = F²·that, h = 2F·‖that‖² + 10F²
    played = play(QFFL(lr=0.1, q_f=2.0), two_clients, linear(1, 0))
    assert [u.loss for u in played.uploads] == pytest.approx([1.0, 0.25])
    h = (2 * (2 * 5 + 10) + (2 * 0.25 * 0.25 + 10 / 16)) / 3
    assert played.weights == near(1 - (2 * 1 + 0.5 / 16) / 3 / h, (2 * 2) / 3 / h)


def test_qffl_private_round_corrects_the_norm_for_its_noise(two_clients):
    method = QFFL(lr=0.5, loss_clip=0.8)
    played = play(method, two_clients, linear(1, 0), privacy=QUIET, randomness=ONE)
    assert updates(played) == [near(-0.3, 0.2), near(-0.35, -0.1)]
    # (0.8 + 0.8 + 5·0.8)/2 | ¼ + 4
    assert [u.loss for u in played.uploads] == pytest.approx([2.8, 4.25])
    # 0.13 − 2·(½·0.2/2)² | 0.1325 − 2·(½·0.2)²
    assert [u.squared_norm for u in played.uploads] == pytest.approx([0.125, 0.1125])
    h = 2 * (0.125 * 4 + 2.8 * 2) + (0.1125 * 4 + 4.25 * 2)  # F⁰·‖L·u‖² + L·F
    assert played.weights[0] == pytest.approx(1 - (2 * 2.8 * 0.6 + 4.25 * 0.7) / h, abs=1e-6)


def test_qffl_counts_the_noise_of_every_step(two_clients):
    one, two = (
        play(QFFL(lr=0.5, local_steps=k), two_clients, linear(1, 0), privacy=QUIET, randomness=ONE) for k in (1, 2)
    )
    for played, noise in ((one, 0.005), (two, 0.01)):
        upload = played.uploads[0]
        assert upload.squared_norm == pytest.approx(sum(x * x for x in flat(upload.update)) - noise, abs=1e-6)
    swamped = play(QFFL(lr=0.5), two_clients, linear(1, 0), privacy=PRIVATE, randomness=TENTH)
    assert [u.squared_norm for u in swamped.uploads] == [0.0, 0.0]


def test_qffl_floors_a_loss_that_noise_made_negative(two_clients):
    method = QFFL(lr=0.5, q_f=0.5, loss_floor=0.04)
    played = play(method, two_clients, linear(1, 0), privacy=replace(PRIVATE, sigma=1e-9), randomness=Given(-10.0))
    assert all(u.loss < 0 for u in played.uploads)
    # F = 0.04 for both: F^½ = 0.2; u = −½(½, −½) | −½(½, 0)
    h = 2 * (0.5 * 0.2 / 0.04 * 0.125 * 2 + 0.2) + (0.5 * 0.2 / 0.04 * 0.0625 * 2 + 0.2)
    assert played.weights[0] == pytest.approx(1 - 0.2 * (2 * 0.25 + 0.25) / h, abs=1e-6)


# ALI-DPFL -----------------------------------------------------------------------------------------------------------

ALI = ALIDPFL(lr=0.5, round_budget=10, step_budget=50, smoothing=0.0)
WIDE = replace(PRIVATE, clip=10.0, sigma=0.02, accountant="rdp")  # clips nothing; noise as QUIET


def test_ali_dpfl_compares_what_was_released_in_two_rounds(two_clients):
    first = play(ALI, two_clients, linear(1, 0), privacy=WIDE, randomness=ONE)
    assert updates(first) == [near(-0.55, 0.95), near(-0.35, -0.1)]
    assert [u.estimates for u in first.uploads] == [None, None]
    assert (first.state.tau, first.state.spent, first.state.estimates) == (1, 1.0, None)
    assert first.state.terms.noise == pytest.approx(0.08)  # σ²C²d/(q·min n)² = 0.2²·2

    second = play(ALI, two_clients, linear(1, 0), privacy=WIDE, randomness=ONE, after=first)
    u, v = 1 - 1.45 / 3, 0.6
    moved = (1 - u) ** 2 + v**2
    # gradients change by (u − 1, 4v) | (u − 1)/2; 2·d·(σC/n)² = 4·0.01 | 4·0.04 of ‖·‖² is noise
    a, b = second.uploads
    assert a.estimates.curvature == pytest.approx(((1 - u) ** 2 + 5.76 - 0.04) / moved, rel=1e-5)
    assert b.estimates.curvature == pytest.approx(((1 - u) ** 2 / 4 - 0.16) / moved, rel=1e-5)
    # the losses' noise is the same in both rounds
    gaps = [(u**2 + 0.04) / 2 - 1, u**2 / 4 - 0.25]
    assert [a.estimates.descent, b.estimates.descent] == pytest.approx(gaps, rel=1e-5)
    mu2 = (2 * a.estimates.curvature + b.estimates.curvature) / 3
    gap = -(2 * gaps[0] + gaps[1]) / 3
    assert second.state.estimates.curvature == pytest.approx(mu2)
    inside = 1 + (4 / mu2 + 300 + 2 * gap * 10 * mu2**0.5 + 0.08) / (2.2 * 100.08)
    assert second.state.tau == round(inside**0.5) == 2


def test_ali_dpfl_takes_tau_steps_and_one_loss(two_clients):
    method = replace(ALI, local_steps=3)
    broadcast = method.broadcast(method.init(linear(1, 0).initial(), population(two_clients), WIDE))
    assert broadcast.tau == 3
    events = method.events(broadcast, WIDE)
    assert [(e.sigmas, e.count) for e in events] == [((0.02,), 2), ((0.02, 5.0), 1)]
    assert [(e.sigmas, e.count) for e in method.events(None, WIDE)] == [((0.02, 5.0), 1)]  # plans take τ = 1
    # b alone, no noise: u ← u − ½·u/2, three times
    played = play(method, two_clients, linear(1, 0), privacy=WIDE)
    assert updates(played)[1] == near(0.75**3 - 1, 0)


def test_ali_dpfl_smooths_over_rounds(two_clients):
    second = play(ALI, two_clients, linear(1, 0), privacy=WIDE, randomness=ONE, rounds=2)
    third = play(replace(ALI, smoothing=0.75), two_clients, linear(1, 0), privacy=WIDE, randomness=ONE, after=second)
    a, b = third.uploads
    new = (2 * a.estimates.curvature + b.estimates.curvature) / 3
    assert third.state.estimates.curvature == pytest.approx(0.75 * second.state.estimates.curvature + 0.25 * new)


TERMS = Terms(clip=0.1, noise=1.0, rounds=10, steps=100, loss_price=0.0)


@pytest.mark.parametrize(
    ("tau", "estimates", "terms", "expected"),
    [
        # T = 20: (1 + 0.03 + 40 + 1)/(2.1·1.01) = 19.816; √20.816 = 4.56
        (2, Estimates(4.0, -0.5), TERMS, 5),
        # T = min(10·50, 100): (1 + 0.03 + 200 + 1)/(2.02·1.01) = 99.02; √100.02
        (50, Estimates(4.0, 0.5), TERMS, 10),
        (2, Estimates(1e-9, 0.0), TERMS, 100),  # 4/μ² is huge
        (3, Estimates(1e300, 0.0), TERMS, 1),  # (0.03 + 1)/((2 + 2/30)·1.01) + 1 = 1.49
        (7, None, TERMS, 7),
        (7, Estimates(-0.1, 1.0), TERMS, 7),  # noise hides μ
        (7, Estimates(float("nan"), 1.0), TERMS, 7),
        (7, Estimates(4.0, 0.5), replace(TERMS, steps=10), 1),  # as many rounds as steps
    ],
)
def test_ali_dpfl_next_steps(tau, estimates, terms, expected):
    assert next_steps(tau, estimates, terms) == expected


def test_ali_dpfl_ends_with_its_rounds_or_steps(two_clients):
    method = replace(ALI, local_steps=4, round_budget=3, step_budget=10)
    state = play(method, two_clients, linear(1, 0), privacy=WIDE).state
    done = [method.done(replace(state, round=r, spent=s)) for r, s in ((1, 4.0), (2, 9.0), (2, 10.0), (3, 6.0))]
    assert done == [False, False, True, True]
    played = play(method, two_clients, linear(1, 0), privacy=WIDE, rounds=2)
    assert played.state.spent == 8.0
    assert played.state.tau <= 2  # no more than is left


def test_ali_dpfl_needs_privacy_and_a_filter():
    with pytest.raises(SettingError, match=r"algorithm.name = 'ali_dpfl': exists only with privacy; add \[privacy\]"):
        ALI.check_privacy(None)
    with pytest.raises(SettingError, match=r"privacy.accountant = 'pld': .*; set privacy.accountant = \"rdp\""):
        ALI.check_privacy(PRIVATE)
    ALI.check_privacy(WIDE)


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedProx(mu=-1.0), "algorithm.mu = -1.0: a proximal weight from 0 to 1e"),
        (lambda: FedDyn(alpha=0.0), "algorithm.alpha = 0.0: a regularisation from 1e-09 to 1e"),
        (lambda: QFFL(q_f=-0.5), "algorithm.q_f = -0.5: a fairness exponent from 0 to 20"),
        (lambda: QFFL(loss_floor=0.0), "algorithm.loss_floor = 0.0: a bound on a record's loss from 1e-12"),
        (lambda: QFFL(loss_clip=float("nan")), "algorithm.loss_clip = nan: "),
        (lambda: ALIDPFL(step_budget=0), "algorithm.step_budget = 0: a number of steps from 1"),
        (lambda: ALIDPFL(round_budget=0), "algorithm.round_budget = 0: a number of rounds from 1"),
        (lambda: ALIDPFL(local_epochs=1), "algorithm.local_epochs = 1: not here"),
        (lambda: ALIDPFL(smoothing=1.0), "algorithm.smoothing = 1.0: at least 0, below 1"),
    ],
)
def test_settings_out_of_range_are_named(make, message):
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize("method", [FedAvg(lr=0.1), FedProx(lr=0.1), Scaffold(lr=0.1), FedDyn(lr=0.1), QFFL(lr=0.1)])
def test_a_round_nobody_answers_changes_no_weight(two_clients, method):
    played = play(method, two_clients, linear(1, 0), present=lambda client, round: False)
    assert (played.weights, played.state.round) == ([1.0, 0.0], 1)
