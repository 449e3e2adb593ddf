"""Stand-ins that several tests share."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfdp.privacy.randomness import Key, Seeded


@dataclass(frozen=True)
class Given:
    """Randomness whose every noise value is known, and whose batches hold every record (or none)."""

    noise: float = 0.0
    empty: bool = False
    keys: list[Key] = field(default_factory=list)

    @property
    def repeatable(self) -> bool:
        return True

    def uniform(self, count: int, key: Key) -> Tensor:
        return torch.full((count,), 1.0 if self.empty else 0.0, dtype=torch.float64)

    def normal(self, count: int, key: Key) -> Tensor:
        self.keys.append(key)
        return torch.full((count,), self.noise)

    def generator(self, key: Key) -> torch.Generator:
        return Seeded(0).generator(key)
