"""Rows noised together are what each client would have released alone, and nobody gets another's noise."""

import numpy as np
import pytest
import torch

from fedfdp.privacy.noise import noised_
from fedfdp.privacy.randomness import BLOCK, Key, Seeded
from fedfdp.privacy.secure import Secure, grid_step


def key(i: int) -> Key:
    return Key(f"client-{i}", 4, 0, "noise 0")


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [5, 700, BLOCK + 17, 3 * BLOCK])
def test_the_same_numbers_on_any_number_of_threads(threads, count):
    drawn = Seeded(1).normal(count, key(0))
    assert len(drawn) == count
    torch.set_num_threads(1)
    assert torch.equal(drawn, Seeded(1).normal(count, key(0)))


def test_blocks_of_one_vector_are_independent():
    drawn = Seeded(1).normal(3 * BLOCK, key(0)).double().view(3, BLOCK)
    correlations = torch.corrcoef(drawn) - torch.eye(3)
    assert correlations.abs().max() < 5 / BLOCK**0.5  # five standard deviations
    assert len(torch.unique(drawn[:, :8])) == 24


def test_a_wave_gets_what_each_client_would_draw_alone(threads):
    sums = torch.arange(7 * 800, dtype=torch.float32).view(7, 800)
    divisors = [1.0, 2.0, 0.5, 3.0, 5.0, 7.0, 11.0]
    by_hand = [
        (sums[i].double() + 0.25 * Seeded(1).normal(800, key(i)).double()) / divisors[i] for i in range(7)
    ]  # in double precision
    found = noised_(sums.clone(), [key(i) for i in range(7)], scale=0.25, divisors=divisors, randomness=Seeded(1))
    for row, wanted in zip(found, by_hand, strict=True):
        np.testing.assert_allclose(row.double(), wanted, rtol=2e-7, atol=2e-7)


def test_it_is_done_in_place_and_every_row_needs_its_key():
    sums = torch.zeros(2, 10)
    assert noised_(sums, [key(0), key(1)], scale=1.0, divisors=[1.0, 1.0], randomness=Seeded(1)) is sums
    assert torch.equal(sums[1], Seeded(1).normal(10, key(1)).float())
    with pytest.raises(ValueError, match="shorter"):
        noised_(sums, [key(0)], scale=1.0, divisors=[1.0, 1.0], randomness=Seeded(1))


def test_fresh_noise_is_never_the_same_and_lies_on_the_grid(threads):
    sums = torch.zeros(4, 800, dtype=torch.float64)
    noised_(sums, [key(0)] * 4, scale=0.3, divisors=[2.0] * 4, randomness=Secure())
    assert all(not torch.equal(sums[i], sums[j]) for i in range(4) for j in range(i))
    steps = sums * 2.0 / grid_step(0.3)
    assert torch.equal(steps, steps.round())
    assert 0.14 < float(sums.std()) < 0.16  # 0.3 / 2, of 3200 numbers


def test_nothing_can_be_noised():
    assert noised_(torch.zeros(2, 0), [key(0)] * 2, scale=1.0, divisors=[1.0] * 2, randomness=Seeded(1)).shape == (2, 0)
