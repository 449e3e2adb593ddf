"""Deployment randomness: the distributions it claims, and nothing to read in the digits of what is released.

Nothing here can be seeded. Each statistical limit is one that right code crosses about once in a million runs.
"""

import itertools
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from fedfdp.algorithms.base import LossQuery
from fedfdp.client import LocalClient
from fedfdp.data import Federation
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.learner import Learner, squared_error
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.randomness import Key, box_muller
from fedfdp.privacy.secure import Secure, grid_step, normal, to_grid_
from support import normal as noise_of

KEY = Key("a", 0, 0, "noise 0")
SURE = stats.norm.isf(0.5e-6)  # 4.9 deviations


# Distributions --------------------------------------------------------------------------------------------------------


def test_noise_is_standard_normal():
    n = 400_001  # an odd number: half a pair is thrown away
    draws = normal(n)
    assert draws.dtype == torch.float64
    assert draws.shape == (n,)
    z = draws.numpy()
    assert stats.kstest(z, "norm").pvalue > 1e-6
    # E z² = 1, E z⁴ = 3, E z⁶ = 15, E z⁸ = 105
    for power, mean, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105)):
        assert abs((z**power).mean() - mean) < SURE * math.sqrt((square - mean**2) / n)


@pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0])
def test_tails_have_the_mass_they_should(beyond):
    z, p = normal(1_000_000).numpy(), stats.norm.sf(beyond)
    for side in (z, -z):
        assert stats.binomtest(int((side > beyond).sum()), len(z), p).pvalue > 1e-6


def test_the_far_tail_is_reachable():
    # The least word gives u = 2⁻⁶⁵: √(2·65·ln 2) = 9.4926 along the angle 0.
    assert box_muller(np.array([0, 0], dtype=np.uint64))[0] == pytest.approx(9.49258, abs=1e-5)
    # A word below 2⁶⁴·2·P(z > 6) lands beyond 6 at that angle; half a turn is the other tail.
    rare = int(2**64 * math.exp(-18.0))
    assert box_muller(np.array([rare, 0], dtype=np.uint64))[0] == pytest.approx(6.0, abs=1e-9)
    assert box_muller(np.array([rare, 2**63], dtype=np.uint64))[0] == pytest.approx(-6.0, abs=1e-9)


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1])
def test_no_word_makes_a_number_that_is_not_finite(word):
    for other in (0, 2**62, 2**64 - 1):
        assert box_muller(np.array([word, other], dtype=np.uint64)).isfinite().all()


def test_both_numbers_of_a_pair_are_independent():
    n = 400_000
    z = normal(n).numpy()
    first, second = z[: n // 2], z[n // 2 :]  # cosine and sine of the same pairs
    for power in (1, 2):
        r = np.corrcoef(first**power, second**power)[0, 1]
        assert abs(r) < SURE / math.sqrt(n // 2)


def test_uniform_numbers():
    n = 400_000
    u = Secure().uniform(n, KEY)
    assert u.dtype == np.float64
    assert float(u.min()) >= 0.0
    assert float(u.max()) < 1.0
    assert np.array_equal(u * 2**53, (u * 2**53).round())
    assert float((u * 2**53 % 2).mean()) == pytest.approx(0.5, abs=SURE * 0.5 / math.sqrt(n))  # the last bit too
    assert stats.kstest(u, "uniform").pvalue > 1e-6
    for q in (0.05, 0.5):
        assert stats.binomtest(int((u < q).sum()), n, q).pvalue > 1e-6


def test_extreme_words_stay_below_one(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)
    assert Secure().uniform(1, KEY).item() == 1 - 2**-53
    monkeypatch.setattr(os, "urandom", lambda count: b"\x00" * count)
    assert Secure().uniform(1, KEY).item() == 0.0


# Fresh at every call --------------------------------------------------------------------------------------------------


def test_nothing_repeats_whatever_the_key():
    keys = [Key(c, r, 0, p) for c, r, p in itertools.product(("a", "b"), (0, 1), ("noise 0", "loss 0"))]
    draws = [tuple(noise_of(Secure(), 4, key).tolist()) for key in keys * 2]
    assert len(set(draws)) == len(draws)
    assert not np.array_equal(Secure().uniform(4, KEY), Secure().uniform(4, KEY))
    states = [Secure().state(KEY).numpy().tobytes() for _ in range(8)]
    assert len(set(states)) == 8
    assert not Secure().repeatable


def test_clients_rounds_and_purposes_are_uncorrelated():
    n, source = 100_000, Secure()
    keys = [KEY, KEY, Key("b", 0, 0, "noise 0"), Key("a", 1, 0, "noise 0"), Key("a", 0, 0, "loss 0")]
    draws = np.stack([noise_of(source, n, key).numpy() for key in keys])
    off_diagonal = np.corrcoef(draws)[~np.eye(len(keys), dtype=bool)]
    assert np.abs(off_diagonal).max() < stats.norm.isf(0.5e-6 / 10) / math.sqrt(n)


def test_seeds_have_no_say():
    torch.manual_seed(0)
    one = noise_of(Secure(), 4, KEY)
    torch.manual_seed(0)
    assert not torch.equal(noise_of(Secure(), 4, KEY), one)


# Floating-point attacks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "step"), [(1.0, 2**-10), (1.99, 2**-10), (2.0, 2**-9), (0.2, 2**-13)])
def test_the_step_is_a_power_of_two_below_a_thousandth_of_the_noise(scale, step):
    assert grid_step(scale) == step


floats32 = st.floats(-100, 100, width=32)


@given(value=floats32, scale=st.floats(1e-3, 1e3), cell=st.integers(-8000, 8000))
def test_every_cell_is_reached_from_every_value(value, scale, cell):
    """The same outputs can occur whatever the value: noise exists that leads to any cell, and not just one number."""
    step = grid_step(scale)
    target = (round(value / step) + cell) * step
    noise = (target - value) / scale
    for nudge in (-0.49, -0.3, 0.0, 0.3, 0.49):
        noised = torch.tensor([value + scale * (noise + nudge * step / scale)], dtype=torch.float64)
        assert float(to_grid_(noised, scale)) == target


def released(value: float, count: int, scale: float = 1.0) -> np.ndarray:
    return to_grid_(normal(count).mul_(scale).add_(torch.tensor(value)), scale).numpy()


def test_cells_have_the_mass_of_the_gaussian():
    value, step = 0.3333333, grid_step(1.0)
    found = released(value, 1_000_000)
    cells = np.round(found / step).astype(int)
    assert np.array_equal(cells * step, found)
    # Near the value, cell by cell; the probability is that of the cell, not that of its centre.
    inside = np.arange(0, 600)
    edges = (np.append(inside, 600) - 0.5) * step - value
    p = np.diff(stats.norm.cdf(edges))
    counts = np.bincount(cells[(cells >= 0) & (cells < 600)], minlength=600)
    rest = len(found) - counts.sum()
    observed, expected = np.append(counts, rest), np.append(p, 1 - p.sum()) * len(found)
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def told_apart(zero: np.ndarray, one: np.ndarray) -> float:
    """The attack on Gaussian noise added in single precision: next to 0, 1 + noise has coarser steps than 0 + noise."""
    rates = [np.mean(x[np.abs(x) < 0.25] % 2**-24 != 0) for x in (zero.astype(np.float64), one.astype(np.float64))]
    return abs(rates[0] - rates[1])


def test_the_attack_reads_single_precision_and_not_the_grid():
    n = 100_000
    noise = [torch.randn(n, generator=torch.Generator().manual_seed(i)) for i in (0, 1)]
    assert told_apart(noise[0].numpy(), (noise[1] + 1.0).numpy()) > 0.8  # next to 0 nearly every output
    assert told_apart(released(0.0, n), released(1.0, n)) == 0.0


def test_a_client_releases_multiples_of_the_grid():
    x, y = torch.full((3, 1), 0.123457), torch.tensor([1.0, 2.0, 3.0])
    data = Federation.from_clients({"a": (x, y, x, y)}, classes=None).clients[0]
    model = nn.Linear(1, 1, bias=False)
    privacy = DPSGD(epsilon=None, sigma=1.5, sigma_loss=5.0, q=1.0, clip=0.7)
    client = LocalClient(data, Learner(model, squared_error), privacy=privacy, randomness=Secure(), round=0)
    batch = next(client.batches(steps=1, epochs=None, batch_size=1))
    answer = batch.release(
        client.learner.initial(), coefficient=PlainClip(0.7), loss=LossQuery(2.5, count=True), count_norms=True
    )
    scales = {"gradient": 1.5 * 0.7, "loss": 5.0 * 2.5, "losses_within": 10.0, "norms_within": 10.0}
    numbers = [float(answer.gradient["weight"]), answer.loss, answer.losses_within, answer.norms_within]
    for number, (what, scale) in zip(numbers, scales.items(), strict=True):
        cells = number * 3 / grid_step(scale)  # times the divisor q·n
        assert cells == pytest.approx(round(cells), abs=1e-3), what
        assert abs(number * 3) < 12 * scale
