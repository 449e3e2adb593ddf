import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedfdp.privacy.noise.randomness import Key, Seeded, generator_state, one_normal
from support import normal


def test_the_same_key_gives_the_same_numbers_and_any_other_different_ones():
    keys = [Key(c, r, a, p) for c, r, a, p in itertools.product(("a", "b"), (0, 1), (0, 1), ("noise 0", "batch 0"))]
    draws = {key: tuple(normal(Seeded(7), 4, key).tolist()) for key in keys}
    assert all(tuple(normal(Seeded(7), 4, key).tolist()) == numbers for key, numbers in draws.items())
    assert len(set(draws.values())) == len(keys)
    assert all(tuple(normal(Seeded(8), 4, key).tolist()) != numbers for key, numbers in draws.items())


def test_neighbouring_names_do_not_run_into_each_other():
    assert normal(Seeded(1), 1, Key("a1", 2, 0, "n")) != normal(Seeded(1), 1, Key("a", 12, 0, "n"))


PURPOSES = [f"{what} {step}" for what in ("noise", "loss", "losses within", "norms within", "batch") for step in (0, 1)]
CLIENTS = st.text(alphabet="\x00a01 ", max_size=6) | st.sampled_from(["a\x000\x000\x00noise 0", "0\x00noise 1"])
KEYS = st.builds(Key, CLIENTS, st.integers(0, 12), st.integers(0, 2), st.sampled_from(PURPOSES))


@given(KEYS, KEYS)
def test_no_two_draws_share_a_name_even_if_clients_are_named_to_make_them(one, other):
    """A client's name may hold the separator."""
    assert (Seeded(1)._name(one) == Seeded(1)._name(other)) == (one == other)


def test_a_single_number_is_noised_with_the_numbers_own_noise_in_double_precision():
    key = Key("a", 3, 0, "loss 0")
    noise = Seeded(2).noised(0.0, key, scale=1.0, divisor=1.0)
    assert Seeded(2).noised(5.0, key, scale=0.5, divisor=4.0) == (5.0 + 0.5 * noise) / 4.0
    radius, angle = np.frombuffer(bytes(range(16)), dtype=np.uint64) / 2**64
    by_definition = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    assert one_normal(bytes(range(16))) == pytest.approx(float(by_definition), rel=1e-14)
    draws = [Seeded(2).noised(0.0, Key(str(i), 3, 0, "loss 0"), scale=1.0, divisor=1.0) for i in range(20_000)]
    assert stats.kstest(draws, "norm").pvalue > 1e-4


def test_the_noise_does_not_depend_on_torchs_default_precision():
    single = normal(Seeded(1), 1000, Key("a", 0, 0, "noise 0"))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(normal(Seeded(1), 1000, Key("a", 0, 0, "noise 0")), single)
    finally:
        torch.set_default_dtype(torch.float32)
    assert single.dtype == torch.float32


def test_global_state_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = normal(Seeded(0), 3, Key("a", 0, 0, "n"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(normal(Seeded(0), 3, Key("a", 0, 0, "n")), one)


def test_the_whole_state_comes_from_the_key():
    # torch's own seeding keeps 32 bits: these two seeds give the same stream, and so could two keys of a long run
    a, b = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5 + 2**32)
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    words = {tuple(generator_state(str(i).encode())[24:].tolist()) for i in range(50)}
    assert len(words) == 50
    state = generator_state(b"key")[24 : 24 + 8 * 624].numpy().view(np.uint64)
    assert len(set(state.tolist())) > 620
    assert state.max() < 2**32


@pytest.mark.parametrize("client", ["a", "b"])
def test_noise_is_standard_normal(client):
    draws = normal(Seeded(3), 200_000, Key(client, 0, 0, "noise 0")).double().numpy()
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    assert abs(draws.mean()) < 4 / np.sqrt(200_000)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / 200_000)
    assert abs((np.abs(draws) > 3).mean() - 2 * stats.norm.sf(3)) < 4 * np.sqrt(0.0027 / 200_000)


def test_noise_of_different_clients_rounds_and_purposes_is_uncorrelated():
    keys = [Key("a", 0, 0, "noise 0"), Key("b", 0, 0, "noise 0"), Key("a", 1, 0, "noise 0"), Key("a", 0, 0, "loss 0")]
    draws = np.stack([normal(Seeded(3), 50_000, key).numpy() for key in keys])
    off_diagonal = np.corrcoef(draws)[~np.eye(4, dtype=bool)]
    assert np.abs(off_diagonal).max() < 4.5 / np.sqrt(50_000)


def test_batches_have_the_rate_they_claim():
    inside = Seeded(0).uniform(400_000, Key("a", 0, 0, "batch 0")) < 0.05
    assert abs(inside.mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 400_000)
