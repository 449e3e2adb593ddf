"""Noise on what is about to leave: the one place where the sums of a batch turn into a release.

Rows of many clients are noised together on all threads. The numbers are those that each would have drawn alone.
"""

from collections.abc import Sequence

from torch import Tensor

from fedfdp.parallel import for_each
from fedfdp.privacy.randomness import Key, Randomness
from fedfdp.privacy.secure import to_grid_


def noised_(
    sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float], randomness: Randomness
) -> Tensor:
    """Row i ← (row i + scale·N(0, I)) / divisor i, in place; row i's noise is that of key i."""

    def release(row: tuple[Tensor, Key, float]) -> None:
        value, key, divisor = row
        noise = randomness.normal(len(value), key).to(value.device)
        if randomness.repeatable:
            value.add_(noise, alpha=scale).div_(divisor)
        else:  # a deployment: all in double precision, and no low-order bits left to read
            value.copy_(to_grid_(noise.mul_(scale).add_(value), scale).div_(divisor))

    for_each(release, list(zip(sums.unbind(), keys, divisors, strict=True)))
    return sums
