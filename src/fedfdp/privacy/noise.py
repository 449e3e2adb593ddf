"""Noise on what is about to leave: the one place where the sums of a batch turn into a release.

Rows of many clients are noised together on all threads. The numbers are those that each would have drawn alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedfdp.parallel import for_each
from fedfdp.privacy.randomness import BLOCK, Key, Randomness
from fedfdp.privacy.secure import to_grid_


def noised_(
    sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float], randomness: Randomness
) -> Tensor:
    """Row i ← (row i + scale·N(0, I)) / divisor i, in place; row i's noise is that of key i."""

    def add(row: tuple[Tensor, Key, float]) -> None:
        value, key, divisor = row
        noise = randomness.normal(len(value), key).to(value.device)
        # In parts that torch does not share out among threads of its own: this is one of as many threads as may be.
        for part, its_noise in zip(torch.split(value, BLOCK), torch.split(noise, BLOCK), strict=True):
            part.add_(its_noise, alpha=scale).div_(divisor)

    rows = list(zip(sums.unbind(), keys, divisors, strict=True))
    if randomness.repeatable:
        for_each(add, rows)
        return sums
    for value, key, divisor in rows:
        # A deployment: all in double precision, and no low-order bits left to read.
        noise = randomness.normal(len(value), key).to(value.device)
        value.copy_(to_grid_(noise.mul_(scale).add_(value), scale).div_(divisor))
    return sums
