"""Rows noised together are what each client would have released alone, and nobody gets another's noise."""

import numpy as np
import pytest
import torch

from fedfdp.native.philox import BLOCK
from fedfdp.privacy.noise.randomness import Key, Seeded
from fedfdp.privacy.noise.secure import Secure, grid_step
from support import normal, torch_threads


def key(i: int) -> Key:
    return Key(f"client-{i}", 4, 0, "noise 0")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    with torch_threads(request.param):
        yield request.param


@pytest.mark.parametrize("count", [1, 5, 700, BLOCK, BLOCK + 17, 5 * BLOCK, 40 * BLOCK - 1])
def test_the_same_numbers_on_any_number_of_threads(threads, count):
    drawn = normal(Seeded(1), count, key(0))
    assert len(drawn) == count
    torch.set_num_threads(1)
    assert torch.equal(drawn, normal(Seeded(1), count, key(0)))


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("columns", [1, BLOCK, 5 * BLOCK + 3])
def test_every_number_is_noised_once(threads, rows, columns):
    sums, keys = torch.zeros(rows, columns), [key(i) for i in range(rows)]
    Seeded(1).noised_(sums, keys, scale=1.0, divisors=[1.0] * rows)
    for i in range(rows):
        assert torch.equal(sums[i], normal(Seeded(1), columns, key(i)))


def test_blocks_of_one_vector_are_independent():
    drawn = normal(Seeded(1), 3 * BLOCK, key(0)).double().view(3, BLOCK)
    correlations = torch.corrcoef(drawn) - torch.eye(3)
    assert correlations.abs().max() < 5 / BLOCK**0.5  # five standard deviations
    assert len(torch.unique(drawn[:, :8])) == 24


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_wave_gets_what_each_client_would_draw_alone(threads, dtype):
    sums = torch.arange(7 * 800, dtype=dtype).view(7, 800)
    divisors = [1.0, 2.0, 0.5, 3.0, 5.0, 7.0, 11.0]
    by_hand = [
        (sums[i].double() + 0.25 * normal(Seeded(1), 800, key(i)).double()) / divisors[i] for i in range(7)
    ]  # in double precision
    found = Seeded(1).noised_(sums.clone(), [key(i) for i in range(7)], scale=0.25, divisors=divisors)
    for row, wanted in zip(found, by_hand, strict=True):
        np.testing.assert_allclose(row.double(), wanted, rtol=3e-7, atol=3e-7)


def test_rows_that_do_not_lie_together_get_the_same():
    apart = torch.zeros(2, 20)[:, ::2]
    Seeded(1).noised_(apart, [key(0), key(1)], scale=1.0, divisors=[1.0, 1.0])
    assert torch.equal(apart[1], normal(Seeded(1), 10, key(1)))
    apart = torch.zeros(2, 20)[:, ::2]
    Secure().noised_(apart, [key(0), key(1)], scale=1.0, divisors=[1.0, 1.0])
    assert len(apart.unique()) > 10  # of 20 numbers on a grid of a thousandth
    assert apart.abs().max() < 6


def test_it_is_done_in_place_and_every_row_needs_its_key():
    sums = torch.zeros(2, 10)
    assert Seeded(1).noised_(sums, [key(0), key(1)], scale=1.0, divisors=[1.0, 1.0]) is sums
    assert torch.equal(sums[1], normal(Seeded(1), 10, key(1)))
    for source in (Seeded(1), Secure()):
        for numbers in (sums, sums.double()):
            with pytest.raises(ValueError, match=r"rows|shorter"):
                source.noised_(numbers, [key(0)], scale=1.0, divisors=[1.0, 1.0])
            with pytest.raises(ValueError, match=r"rows|shorter"):
                source.noised_(numbers, [key(0), key(1)], scale=1.0, divisors=[1.0])


def test_fresh_noise_is_never_the_same_and_lies_on_the_grid(threads):
    sums = torch.zeros(4, 800, dtype=torch.float64)
    Secure().noised_(sums, [key(0)] * 4, scale=0.3, divisors=[2.0] * 4)
    assert all(not torch.equal(sums[i], sums[j]) for i in range(4) for j in range(i))
    steps = sums * 2.0 / grid_step(0.3)
    assert torch.equal(steps, steps.round())
    assert 0.14 < float(sums.std()) < 0.16  # 0.3 / 2, of 3200 numbers
    alone = Secure().noised(0.0, key(0), scale=0.3, divisor=2.0) * 2.0 / grid_step(0.3)
    assert alone == round(alone)


@pytest.mark.parametrize("shape", [(2, 0), (0, 5)])
def test_nothing_can_be_noised(shape):
    keys = [key(0)] * shape[0]
    assert Seeded(1).noised_(torch.zeros(shape), keys, scale=1.0, divisors=[1.0] * len(keys)).shape == shape
