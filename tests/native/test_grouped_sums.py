"""Sums over many small groups are those of the same records group by group, and by the definition."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from fedfdp.models.losses import cross_entropy
from fedfdp.native import grouped_sums as small
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.groups import Groups, Sums
from support import torch_threads

SIZES = [3, 0, 1, 5, 0, 0, 2, 7, 1, 1, 4, 0, 2, 3, 1, 6, 0, 2, 5, 1]  # more than small.MOST groups, some of them empty
BOUNDS = (0, *itertools.accumulate(SIZES))


@pytest.fixture(params=[1, 3])
def threads(request):
    with torch_threads(request.param):
        yield request.param


def test_rows_by_the_definition(threads):
    rng = np.random.default_rng(0)
    rows, c = rng.standard_normal((BOUNDS[-1], 6)).astype(np.float32), rng.random(BOUNDS[-1]).astype(np.float32)
    source = torch.tensor([3, 1, 0, 5, 4, 2], dtype=torch.int32)
    into = torch.full((len(SIZES), 10), 7.0)
    small.put_rows(into, 2, torch.from_numpy(rows), torch.from_numpy(c), BOUNDS, source)
    for k, (low, high) in enumerate(itertools.pairwise(BOUNDS)):
        by_hand = (c[low:high, None].astype(float) * rows[low:high])[:, source].sum(0)
        np.testing.assert_allclose(into[k, 2:8], by_hand, rtol=1e-5, atol=1e-6)
    assert (into[:, :2] == 7).all()  # what lies beside is left alone
    assert (into[:, 8:] == 7).all()


def test_products_by_the_definition(threads):
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal((BOUNDS[-1], width)).astype(np.float32) for width in (3, 4))
    into = torch.full((len(SIZES), 14), 7.0)
    small.put_outer(into, 1, torch.from_numpy(left), torch.from_numpy(right), BOUNDS)
    for k, (low, high) in enumerate(itertools.pairwise(BOUNDS)):
        by_hand = np.einsum("bo,bi->oi", left[low:high].astype(float), right[low:high])
        np.testing.assert_allclose(into[k, 1:13].view(3, 4), by_hand, rtol=1e-5, atol=1e-6)
    assert (into[:, [0, 13]] == 7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_groups_are_each_what_they_are_alone(threads, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 5, 3, stride=2), nn.GroupNorm(1, 5), nn.Flatten(), nn.Linear(20, 4)
    ).to(dtype)
    x, y = torch.randn(BOUNDS[-1], 1, 8, 8, dtype=dtype), torch.arange(BOUNDS[-1]) % 4
    together = clipped_sum(model, cross_entropy, x, y, clip=0.3, sizes=SIZES)
    for k, (low, high) in enumerate(itertools.pairwise(BOUNDS)):
        alone = clipped_sum(model, cross_entropy, x[low:high], y[low:high], clip=0.3)
        assert torch.allclose(together.flat[k], alone.flat, rtol=1e-5, atol=1e-7)


def test_a_bad_record_leaves_its_group_without_it(threads):
    model = nn.Linear(5, 3)
    x, y = torch.randn(BOUNDS[-1], 5), torch.arange(BOUNDS[-1]) % 3
    x[4] = torch.nan  # in the fourth group, the records 4 to 8
    together = clipped_sum(model, cross_entropy, x, y, clip=0.3, sizes=SIZES)
    alone = clipped_sum(model, cross_entropy, x[5:9], y[5:9], clip=0.3)
    assert together.skipped == 1
    assert torch.allclose(together.flat[3], alone.flat, rtol=1e-5, atol=1e-7)
    assert together.flat.isfinite().all()


def test_the_loops_are_for_many_small_groups_in_single_precision():
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    assert small.fits(BOUNDS, single)
    assert not small.fits(BOUNDS, single, double)
    assert not small.fits(tuple(range(0, 1000, 100)), single)  # few
    assert not small.fits(tuple(range(0, 100 * 100, 100)), single)  # large


def test_one_large_group_among_empty_ones_is_left_to_the_library():
    assert not small.fits((0,) * 50 + (100,), torch.zeros(1))


@pytest.mark.parametrize("width", [5, 7])
def test_rows_of_another_size_are_refused(width):
    sums = Sums({"w": torch.zeros(6), "next": torch.zeros(6)}, len(SIZES))
    with pytest.raises(ValueError, match=r"w: \d numbers for 6"):
        sums.add_rows("w", Groups.of(SIZES), torch.ones(BOUNDS[-1], width), torch.ones(BOUNDS[-1]))
    with pytest.raises(ValueError, match=r"w: \d numbers for 6"):
        sums.add_outer("w", Groups.of(SIZES), torch.ones(BOUNDS[-1], 1), torch.ones(BOUNDS[-1], width))
