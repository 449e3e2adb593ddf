"""Noise for many clients drawn together, on all threads, before it is asked for: the same numbers, sooner.

Each vector is handed out once, and only so many are held as fit a few megabytes.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from fedfdp.parallel import for_each
from fedfdp.privacy.randomness import Key, Randomness

HELD = 2**22  # numbers drawn at a time: 16 megabytes


class Ahead:
    """A source of random numbers that is told which noise comes next."""

    def __init__(self, source: Randomness) -> None:
        self.source, self.repeatable = source, source.repeatable
        self._next: Iterator[Key] = iter(())
        self._count = 0
        self._drawn: dict[Key, Tensor] = {}

    def expect(self, count: int, keys: Iterable[Key]) -> None:
        """So many normal numbers will be asked for under each of these keys, in this order."""
        self._next, self._count, self._drawn = iter(keys), count, {}

    def normal(self, count: int, key: Key) -> Tensor:
        if count == self._count and not self._drawn:
            self._draw()
        drawn = self._drawn.pop(key, None) if count == self._count else None
        return self.source.normal(count, key) if drawn is None else drawn

    def _draw(self) -> None:
        keys = list(islice(self._next, max(1, HELD // max(1, self._count))))

        def draw(key: Key) -> None:
            self._drawn[key] = self.source.normal(self._count, key)

        for_each(draw, keys)

    def uniform(self, count: int, key: Key) -> Tensor:
        return self.source.uniform(count, key)

    def generator(self, key: Key) -> torch.Generator:
        return self.source.generator(key)
