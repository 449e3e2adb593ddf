"""Batches and noise from the operating system's entropy, rounded to a grid so that low-order bits tell nothing.

Nothing here can be seeded, repeated or predicted, and no state is kept: a fork or a copy of the process shares nothing.
A few words come from the operating system directly. Many words are the key stream of ChaCha20, the cipher that such
systems use for their own random numbers, under a key from the system that is used once and forgotten.

The mitigation for floating-point attacks (Mironov 2012; Jin et al. 2022) is **round after adding**: noise in double
precision is added to the exact value in double precision, and the sum is rounded to a grid that depends on public
values only. Whatever the value was, the released number is a multiple of the grid step, every multiple can occur, and
its probability is the Gaussian's mass on that cell, to nine digits within six deviations: no low-order bits are left to
read the value from. Rounding is post-processing, so the accounting is unchanged; it adds less than 1e-7 of the noise's
variance. What remains is rounding in the sum of the clipped gradients themselves, before the noise.
"""

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.native.grid_noise import add_noise_
from fedfdp.privacy.noise.randomness import Floats, Key, generator_state, to_unit

FINENESS = 10  # the grid's step is between 2⁻¹¹ and 2⁻¹⁰ of the noise's standard deviation
FEW = 256  # up to this many words the operating system is as fast as setting up a cipher


class Secure:
    """Fresh numbers at every call, whatever the key: `Randomness` for deployments."""

    @property
    def repeatable(self) -> bool:
        return False

    def uniform(self, count: int, key: Key) -> Floats:
        return to_unit(_words(count))

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        """Everything in double precision and rounded to the grid."""
        for row, _, divisor in zip(sums.unbind(), keys, divisors, strict=True):
            exact, words = row.to("cpu", torch.float64, copy=True), _words(len(row) + len(row) % 2)
            row.copy_(add_noise_(exact, torch.from_numpy(words), scale=scale, step=grid_step(scale), divisor=divisor))
        return sums

    def noised(self, value: float, key: Key, *, scale: float, divisor: float) -> float:
        exact = torch.tensor([value], dtype=torch.float64)
        return float(self.noised_(exact[None], [key], scale=scale, divisors=[divisor]))

    def state(self, key: Key) -> Tensor:
        return generator_state(os.urandom(64))


def _words(count: int) -> NDArray[np.uint64]:
    """Words that nobody can predict."""
    if count <= FEW:
        return np.frombuffer(bytearray(os.urandom(8 * count)), dtype=np.uint64)
    room = bytearray(8 * count)
    Cipher(ChaCha20(os.urandom(32), bytes(16)), mode=None).encryptor().update_into(room, room)
    return np.frombuffer(room, dtype=np.uint64)


def grid_step(scale: float) -> float:
    """The step for noise of this standard deviation: a power of two, so that dividing by it is exact."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - FINENESS)
