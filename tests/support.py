"""Stand-ins that several tests share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import dp_accounting
import numpy as np
import torch
from torch import Tensor

from fedfdp.privacy.accounting import Event
from fedfdp.privacy.noise.randomness import Floats, Key, Randomness, Seeded


@contextmanager
def torch_threads(count: int) -> Iterator[int]:
    """So many threads for torch and for us, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield count
    finally:
        torch.set_num_threads(before)


def dp_event(event: Event) -> dp_accounting.DpEvent:
    """The same event for the accountants of dp-accounting."""
    gaussian = dp_accounting.GaussianDpEvent(event.sigma_effective)
    return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(event.q, gaussian), event.count)


def normal(source: Randomness, count: int, key: Key) -> Tensor:
    """The noise of that key by itself."""
    return source.noised_(torch.zeros(1, count), [key], scale=1.0, divisors=[1.0])[0]


@dataclass(frozen=True)
class Given:
    """Randomness whose every noise value is known, and whose batches hold every record (or none)."""

    noise: float = 0.0
    empty: bool = False
    keys: list[Key] = field(default_factory=list)

    @property
    def repeatable(self) -> bool:
        return True

    def uniform(self, count: int, key: Key) -> Floats:
        return np.full(count, 1.0 if self.empty else 0.0)

    def noised_(self, sums: Tensor, keys: Sequence[Key], *, scale: float, divisors: Sequence[float]) -> Tensor:
        self.keys.extend(keys)
        return sums.add_(scale * self.noise).div_(torch.tensor(divisors)[:, None])

    def noised(self, value: float, key: Key, *, scale: float, divisor: float) -> float:
        self.keys.append(key)
        return (value + scale * self.noise) / divisor

    def state(self, key: Key) -> Tensor:
        return Seeded(0).state(key)
