"""Noise drawn before it is asked for is the noise that would have been drawn, and nobody gets another's."""

import pytest
import torch

from fedfdp.privacy import ahead
from fedfdp.privacy.ahead import Ahead
from fedfdp.privacy.randomness import BLOCK, Key, Seeded
from fedfdp.privacy.secure import Secure


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


def test_a_wave_gets_what_each_client_would_draw_alone(threads, monkeypatch):
    monkeypatch.setattr(ahead, "HELD", 2500)  # three vectors at a time
    source, keys = Ahead(Seeded(1)), [key(i) for i in range(8)]
    source.expect(800, keys)
    found = [source.normal(800, k) for k in keys]
    assert all(torch.equal(drawn, Seeded(1).normal(800, k)) for drawn, k in zip(found, keys, strict=True))


def test_out_of_order_unexpected_or_of_another_length_is_drawn_as_usual(threads):
    source = Ahead(Seeded(1))
    source.expect(800, [key(i) for i in range(3)])
    for asked, count in ((2, 800), (0, 700), (7, 800), (0, 800), (1, 800), (1, 800)):
        assert torch.equal(source.normal(count, key(asked)), Seeded(1).normal(count, key(asked)))


def test_fresh_noise_is_handed_out_once(threads):
    source = Ahead(Secure())
    source.expect(800, [key(0), key(1)])
    drawn = [source.normal(800, key(i)) for i in (0, 1, 0, 1)]
    assert not source.repeatable
    assert all(not torch.equal(drawn[i], drawn[j]) for i in range(4) for j in range(i))


def test_nothing_can_be_asked_for():
    assert Ahead(Seeded(1)).normal(0, key(0)).shape == (0,)
