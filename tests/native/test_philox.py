"""The compiled streams against published vectors and against the same formulas in double precision."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fedfdp.native import philox as streams
from fedfdp.native.compiled import compiled
from fedfdp.native.philox import BLOCK, add_normal, uniform


def counter_at(position: int, seed: list[int]) -> list[int]:
    room = np.zeros(4, dtype=np.uint32)
    compiled(streams._fill, "void(uint32[::1], int64, uint32[::1])")(room, position, np.array(seed, np.uint32))
    return room.tolist()


def test_the_words_are_those_of_the_authors_of_philox():
    # kat_vectors of Random123 for philox4x32-10: counter and key of zeros, of ones, of the digits of π
    assert counter_at(0, [0, 0, 0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert counter_at(-1, [2**32 - 1] * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    position = 0x85A308D3_243F6A88 - 2**64
    seed = [0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    assert counter_at(position, seed) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 1001])
def test_uniform_numbers_are_the_first_53_bits_of_two_words(count):
    found = uniform(count, np.array([1, 2, 3, 4], dtype=np.uint32))
    half = math.ceil(count / 2)
    words = np.array([counter_at(i, [1, 2, 3, 4]) for i in range(half)], dtype=object).reshape(half, 4).T.reshape(-1)
    assert found.tolist() == [((words[i] << 32 | words[2 * half + i]) >> 11) * 2.0**-53 for i in range(count)]


def test_uniform_numbers_are_uniform():
    n = 1_000_000
    found = uniform(n, np.array([1, 2, 3, 4], dtype=np.uint32))
    assert stats.kstest(found[:200_000], "uniform").pvalue > 1e-6
    assert (found < 1).all()
    for q in (0.001, 0.05, 0.5):
        assert stats.binomtest(int((found < q).sum()), n, q).pvalue > 1e-6
    assert abs((found * 2**53 % 2).mean() - 0.5) < 5 * 0.5 / math.sqrt(n)  # the last bit too


def by_definition(count: int, first: int, seed: list[int]) -> np.ndarray:
    """Box and Muller in double precision, from the words; u is a number of single precision there as here."""
    parts = []
    for start in range(0, count, BLOCK):
        n = min(BLOCK, count - start)
        at = range((first + start) // 4, (first + start) // 4 + math.ceil(n / 4))
        made = np.array([counter_at(i, seed) for i in at], dtype=np.uint32).T.reshape(-1)
        half = math.ceil(n / 2)
        radius, angle = made[: len(made) // 2][:half], made[len(made) // 2 :][:half].astype(np.float64)
        u = ((radius >> 1).astype(np.float32) + np.float32(0.5)).astype(np.float64) / 2**31
        r, turn = np.sqrt(-2 * np.log(u)), 2 * math.pi * angle / 2**32
        parts += [r * np.cos(turn), (r * np.sin(turn))[: n - half]]
    return np.concatenate(parts)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 1000, BLOCK - 1, BLOCK + 5])
def test_numbers_are_box_and_mullers(count):
    into = torch.zeros(1, count)
    add_normal(into, np.array([[9, 8, 7, 6]], dtype=np.uint32), 1.0, [1.0])
    np.testing.assert_allclose(into[0], by_definition(count, 0, [9, 8, 7, 6]), atol=6e-7)


def extreme(radius: int, angle: int) -> tuple[float, float]:
    cosine, sine = np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    words32 = (np.array([word], dtype=np.uint32) for word in (radius, angle))
    streams.add_pairs(*words32, cosine, sine, np.float32(1), np.float32(1))
    return float(cosine[0]), float(sine[0])


@pytest.mark.parametrize("radius", [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1])
@pytest.mark.parametrize("angle", [0, 1, 2**29 - 1, 2**29, 2**30, 2**31, 2**31 + 2**29, 3 * 2**30, 2**32 - 1])
def test_extreme_words_give_what_they_should(radius, angle):
    u = float(np.float32(radius >> 1) + np.float32(0.5)) / 2**31
    r, turn = math.sqrt(-2 * math.log(u)), 2 * math.pi * angle / 2**32
    found = extreme(radius, angle)
    assert found == pytest.approx((r * math.cos(turn), r * math.sin(turn)), abs=1e-6)
    assert math.hypot(*found) <= 6.67  # √(2·32·ln 2) = 6.6605


def test_a_long_stream_is_standard_normal_to_its_tails():
    n = 4_000_000
    drawn = torch.zeros(1, n)
    add_normal(drawn, np.array([[1, 2, 3, 4]], dtype=np.uint32), 1.0, [1.0])
    z = drawn[0].double().numpy()
    for power, mean, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105)):  # E z² = 1, E z⁴ = 3, …
        assert abs((z**power).mean() - mean) < 5 * math.sqrt((square - mean**2) / n)
    for beyond in (1.0, 2.0, 3.0, 4.0, 4.5):
        for side in (z, -z):
            assert stats.binomtest(int((side > beyond).sum()), n, stats.norm.sf(beyond)).pvalue > 1e-6
    assert stats.kstest(z[:500_000], "norm").pvalue > 1e-6


def test_neighbouring_seeds_are_unrelated():
    seeds = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=np.uint32)
    z = torch.zeros(5, 100_000)
    add_normal(z, seeds, 1.0, [1.0] * 5)
    off_diagonal = np.corrcoef(z)[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / math.sqrt(100_000)
