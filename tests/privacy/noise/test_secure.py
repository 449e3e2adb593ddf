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
from torch import Tensor, nn

from fedfdp.algorithms.base import LossQuery
from fedfdp.data import Federation
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.native.grid_noise import PAIRS, add_noise_
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Key
from fedfdp.privacy.noise.secure import FEW, Secure, _words, grid_step
from fedfdp.training.client import LocalClient
from support import normal as noise_of
from support import torch_threads

KEY = Key("a", 0, 0, "noise 0")
SURE = stats.norm.isf(0.5e-6)  # 4.9 deviations


def box_muller(words: np.ndarray, count: int | None = None) -> Tensor:
    """The compiled loop's numbers, on a grid too fine to be seen."""
    values = torch.zeros(len(words) if count is None else count, dtype=torch.float64)
    return add_noise_(values, torch.from_numpy(words), scale=1.0, step=2.0**-60, divisor=1.0)


def normal(count: int) -> Tensor:
    return box_muller(_words(count + count % 2), count)


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


@pytest.mark.parametrize("count", [1, 2, 3, 1001, 2 * PAIRS - 1, 2 * PAIRS, 2 * PAIRS + 1, 9 * PAIRS + 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_numbers_are_box_and_mullers(count, threads):
    words = np.random.default_rng(count).integers(2**64, size=count + count % 2, dtype=np.uint64)
    radius, angle = np.split(words, 2)
    r, turn = np.sqrt(-2 * np.log((radius + 0.5) / 2**64)), 2 * np.pi * (angle / 2**64)
    with torch_threads(threads):
        found = box_muller(words, count)
    by_numpy = np.concatenate([r * np.cos(turn), r * np.sin(turn)])[:count]
    np.testing.assert_allclose(found, by_numpy, rtol=0, atol=2e-14)  # |z| ≤ 9.5, and 2π·angle is rounded there too


@pytest.mark.parametrize(("words", "count"), [(1000, 1001), (1002, 1000), (1001, 1001)])
def test_every_number_needs_its_words(words, count):
    with pytest.raises(ValueError, match=f"{words} words for {count} numbers"):
        box_muller(_words(words), count)


def test_noise_is_scaled_rounded_and_divided():
    values, words = torch.linspace(-3.0, 5.0, 1000, dtype=torch.float64), _words(1000)
    by_hand = np.round((values.numpy() + 0.7 * box_muller(words).numpy()) * 1024) / 1024 / 3.0
    found = add_noise_(values, torch.from_numpy(words), scale=0.7, step=2.0**-10, divisor=3.0)
    assert found is values
    # a sum within rounding of the middle between two multiples may go to either
    assert np.count_nonzero(found.numpy() != by_hand) <= 1


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


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 10 * FEW])
def test_words(count):
    words = _words(count)
    assert (words.dtype, len(words)) == (np.uint64, count)
    assert len(np.unique(words)) == count
    assert count < 2 or not np.array_equal(words, _words(count))


def test_many_words_are_a_published_key_stream(monkeypatch):
    # RFC 8439, A.1, test vectors 1 and 2: key and nonce of zeros, blocks 0 and 1
    blocks = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(count))
    assert _words(FEW + 1).tobytes()[:128].hex() == blocks
    assert asked == [32]  # the whole key is the system's


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
        words = torch.zeros(2, dtype=torch.uint64)
        assert float(add_noise_(noised, words, scale=0.0, step=step, divisor=1.0)) == target


def released(value: float, count: int, scale: float = 1.0) -> np.ndarray:
    exact = torch.full((count,), value, dtype=torch.float32).double()
    words = torch.from_numpy(_words(count))
    return add_noise_(exact, words, scale=scale, step=grid_step(scale), divisor=1.0).numpy()


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
    privacy = DPSGD(delta=1e-5, epsilon=None, sigma=1.5, sigma_loss=5.0, q=1.0, clip=0.7)
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
