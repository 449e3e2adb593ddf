"""Where batches and noise come from: a key of (client, round, attempt, purpose), never global state.

Seeded randomness makes experiments repeatable. It protects nobody who knows the seed: a deployment draws from the
operating system's entropy.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.parallel import for_each

BLOCK = 2**15  # numbers that come of one generator, for several threads to draw; torch adds up so few on one


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
        if count <= FEW:
            return to_unit(self._words(count, key))
        return torch.rand(count, dtype=torch.float64, generator=self.generator(key))

    def normal(self, count: int, key: Key) -> Tensor:
        if count <= FEW:
            return box_muller(self._words(count + count % 2, key))[:count]
        drawn = torch.empty(count, dtype=torch.float32)
        blocks = list(enumerate(torch.split(drawn, BLOCK)))

        def fill(block: tuple[int, Tensor]) -> None:
            block[1].normal_(generator=generator_from(self._name(key, block[0])))

        for_each(fill, blocks)
        return drawn

    def generator(self, key: Key) -> torch.Generator:
        return generator_from(self._name(key))

    def _words(self, count: int, key: Key) -> NDArray[np.uint64]:
        return np.frombuffer(hashlib.shake_256(self._name(key)).digest(8 * count), dtype=np.uint64)

    def _name(self, key: Key, block: int = 0) -> bytes:
        parts = (self.seed, key.client, key.round, key.attempt, key.purpose, *([block] if block else []))
        return "\x00".join(map(str, parts)).encode()


def to_unit(words: NDArray[np.uint64]) -> Tensor:
    """Multiples of 2⁻⁵³ in [0, 1): a record is in the batch with probability q to within 2⁻⁵³."""
    return torch.from_numpy((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def box_muller(words: NDArray[np.uint64]) -> Tensor:
    """As many normal numbers as words, an even number: no rejection, so its time says nothing, and |z| reaches 9.49.

    What lies beyond has probability 2.3e-21; torch's single-precision generator ends at 5.8 (8e-9).
    """
    if len(words) <= FEW:
        return torch.tensor(_few_normal(words.tolist()), dtype=torch.float64)
    radius, angle = torch.from_numpy(words.astype(np.float64)).chunk(2)
    radius = radius.add_(0.5).mul_(2.0**-64).log_().mul_(-2.0).sqrt_()
    angle = angle.mul_(2.0**-63 * math.pi)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])


def _few_normal(words: list[int]) -> list[float]:
    """The same without a dozen operations on tiny tensors, which take longer than the numbers themselves."""
    half = len(words) // 2
    radii = [math.sqrt(-2.0 * math.log((word + 0.5) * 2.0**-64)) for word in words[:half]]
    angles = [word * (2.0**-63 * math.pi) for word in words[half:]]
    turns = (math.cos, math.sin)
    return [r * turn(a) for turn in turns for r, a in zip(radii, angles, strict=True)]


# torch keeps only 32 bits of a CPU generator's seed: over a run of many clients and rounds two keys would meet, and two
# uploads would carry the same noise. So the whole state of the Mersenne twister is filled from the key.
_WORDS = 624
FEW = _WORDS // 2  # so few numbers are taken from the key as they are: a generator takes as many bytes to fill
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
