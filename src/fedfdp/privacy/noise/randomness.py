"""Random numbers for batches and noise, each from a key of (client, round, attempt, purpose, request): no global state.

Seeded randomness makes experiments repeatable. It protects nobody from those who know the seed: a deployment draws from
the operating system's entropy. The request is a digest of all that an answer depends on, so that two different
questions never get the same noise. If they did, the difference of the answers would be free of noise, even to somebody
who does not know the seed.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.native import philox as streams

Floats = NDArray[np.float64]
# How random numbers are made from a seed. It is part of a run's identity: resumed with another way of making them, a
# repeated round would get other numbers.
STREAMS = "philox4x32-10, box-muller, by request; sums by group"
FRESH = "the operating system's"


class Key(NamedTuple):
    """What a random number is for. Different keys give independent numbers."""

    client: str
    round: int
    attempt: int
    purpose: str
    request: str = ""  # the digest of what is asked of the client; may be empty for numbers that protect nobody


class Randomness(Protocol):
    """A source of random numbers, with an independent stream for each key, and of noise for what a client releases."""

    @property
    def repeatable(self) -> bool:
        """Whether the same key gives the same numbers again."""
        ...

    def uniform(self, count: int, key: Key) -> Floats:
        """Uniform numbers in [0, 1): they decide which records are in a batch."""
        ...

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        """Row i ← (row i + scale·N(0, I)) / divisor i, in place; the noise of row i is that of key i."""
        ...

    def noised(self, value: float, key: Key, *, scale: float, divisor: float) -> float:
        """(value + scale·N(0, 1)) / divisor, for a single number in double precision."""
        ...

    def state(self, key: Key) -> Tensor:
        """A state for a torch generator, for numbers that protect nobody: shuffles, dropout."""
        ...


@dataclass(frozen=True)
class Seeded:
    """The same seed and key give the same numbers; another key gives independent ones."""

    seed: int

    @property
    def repeatable(self) -> bool:
        return True

    def uniform(self, count: int, key: Key) -> Floats:
        return streams.uniform(count, self._seeds([key])[0])

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        """Runs on all threads. No number depends on how many there are, or on the other rows."""
        if not len(sums) == len(keys) == len(divisors):
            raise ValueError(f"{len(sums)} rows, {len(keys)} keys and {len(divisors)} divisors")
        if sums.dtype != torch.float32 or sums.device.type != "cpu" or not sums.is_contiguous():
            noise = torch.zeros(sums.shape, dtype=torch.float32, device="cpu")
            self.noised_(noise, keys, scale=1.0, divisors=[1.0] * len(keys))
            return sums.add_(noise.to(sums.device), alpha=scale).div_(sums.new_tensor(divisors)[:, None])
        streams.add_normal(sums, self._seeds(keys), scale, divisors)
        return sums

    def noised(self, value: float, key: Key, *, scale: float, divisor: float) -> float:
        return float(value + scale * one_normal(hashlib.shake_256(self._name(key)).digest(16))) / divisor

    def state(self, key: Key) -> Tensor:
        return generator_state(self._name(key))

    def _seeds(self, keys: Sequence[Key]) -> NDArray[np.uint32]:
        """For each key the seed of its stream: four words."""
        digests = bytearray().join(hashlib.shake_256(self._name(key)).digest(16) for key in keys)
        return np.frombuffer(digests, dtype=np.uint32).reshape(-1, 4)

    def _name(self, key: Key) -> bytes:
        name = f"{self.seed}\x00{key.client}\x00{key.round}\x00{key.attempt}\x00{key.purpose}"
        return (f"{name}\x00{key.request}" if key.request else name).encode()


def to_unit(words: NDArray[np.uint64]) -> Floats:
    """Multiples of 2⁻⁵³ in [0, 1), so that a record is in the batch with probability q to within 2⁻⁵³."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def one_normal(chance: bytes) -> float:
    """A normal number from sixteen bytes, by Box and Muller's method; |z| is at most 9.49.

    Not by the polynomials of native/grid_noise.py: they differ in the last digit, and seeded runs would change.
    """
    radius, angle = int.from_bytes(chance[:8], "little"), int.from_bytes(chance[8:], "little")
    return math.sqrt(-2.0 * math.log((radius + 0.5) * 2.0**-64)) * math.cos(angle * (2.0**-63 * math.pi))


# torch keeps only 32 bits of a CPU generator's seed. In a run of many clients and rounds two keys would soon get the
# same seed, and two clients the same numbers. So the whole state of the Mersenne twister is filled from the key.
_WORDS = 624
_FIRST_WORD = 24  # bytes of the state before its words: seed, left, seeded, next


@cache
def _template() -> NDArray[np.uint8]:
    return torch.Generator().manual_seed(0).get_state().numpy()


def generator_state(key: bytes) -> Tensor:
    """A generator's state, the whole of it derived from the key (SHAKE-256)."""
    words = np.frombuffer(hashlib.shake_256(key).digest(4 * _WORDS), dtype=np.uint32)
    state = _template().copy()
    state[_FIRST_WORD : _FIRST_WORD + 8 * _WORDS] = words.astype(np.uint64).view(np.uint8)
    return torch.from_numpy(state)
