"""Whose the records of a shard are, where one person has several: a person is drawn, and protected, as a whole."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class People:
    """The persons of a shard, numbered from 0, and where in the shard each one's records are."""

    order: Tensor  # positions in the shard, person after person
    counts: Tensor  # records of each person, at least 1

    @classmethod
    def of(cls, unit: Tensor) -> "People":
        """From the person of each record of the shard."""
        _, person, counts = torch.unique(unit, return_inverse=True, return_counts=True)
        return cls(torch.argsort(person, stable=True), counts)

    def __len__(self) -> int:
        return len(self.counts)

    def positions(self, persons: Tensor) -> Tensor:
        """Where the records of these persons are, person after person."""
        ends = torch.cumsum(self.counts, 0)
        parts = [self.order[int(end) - int(count) : int(end)] for end, count in _each(ends, self.counts, persons)]
        return torch.cat(parts) if parts else self.order[:0]


def _each(ends: Tensor, counts: Tensor, persons: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(ends[persons], counts[persons], strict=True))
