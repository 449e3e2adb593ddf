"""Where batches and noise come from: a key of (client, round, attempt, purpose), never global state.

Seeded randomness makes experiments repeatable. It protects nobody who knows the seed: a deployment draws from the
operating system's entropy.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Key:
    """What a random number is for. Different keys give independent numbers."""

    client: str
    round: int
    attempt: int
    purpose: str


class Randomness(Protocol):
    """A source of random numbers, one independent stream for each key."""

    @property
    def repeatable(self) -> bool:
        """Whether the same key gives the same numbers again."""
        ...

    def uniform(self, count: int, key: Key) -> Tensor:
        """Uniform numbers in [0, 1), float64: what decides who is in a batch."""
        ...

    def normal(self, count: int, key: Key) -> Tensor:
        """Standard normal numbers, the noise; float64 where the sum is to be rounded to a grid before it leaves."""
        ...

    def generator(self, key: Key) -> torch.Generator:
        """For what protects nobody: shuffles, dropout."""
        ...


@dataclass(frozen=True)
class Seeded:
    """The same seed and key give the same numbers; any other key independent ones."""

    seed: int

    @property
    def repeatable(self) -> bool:
        return True

    def uniform(self, count: int, key: Key) -> Tensor:
        return torch.rand(count, dtype=torch.float64, generator=self.generator(key))

    def normal(self, count: int, key: Key) -> Tensor:
        return torch.randn(count, generator=self.generator(key))

    def generator(self, key: Key) -> torch.Generator:
        parts = (self.seed, key.client, key.round, key.attempt, key.purpose)
        return generator_from("\x00".join(map(str, parts)).encode())


# torch keeps only 32 bits of a CPU generator's seed: over a run of many clients and rounds two keys would meet, and two
# uploads would carry the same noise. So the whole state of the Mersenne twister is filled from the key.
_WORDS = 624
_FIRST_WORD = 24  # bytes of the state before its words: seed, left, seeded, next


@cache
def _template() -> Tensor:
    return torch.Generator().manual_seed(0).get_state()


def generator_from(key: bytes) -> torch.Generator:
    """A generator whose whole state is derived from the key (SHAKE-256)."""
    words = np.frombuffer(hashlib.shake_256(key).digest(4 * _WORDS), dtype=np.uint32)
    state = _template().clone()
    state[_FIRST_WORD : _FIRST_WORD + 8 * _WORDS] = torch.from_numpy(words.astype(np.uint64).view(np.uint8).copy())
    generator = torch.Generator()
    generator.set_state(state)
    return generator
