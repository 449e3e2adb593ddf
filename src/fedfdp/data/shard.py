"""A part of a pool: a client's records for training or for the test, and the persons they belong to.

Where one person has several records, a person is drawn, and protected, as a whole.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedfdp.core.trees import Inputs, Tree, form_of, parts_of

AT_ONCE = 32  # records that are converted together


@dataclass(frozen=True, eq=False)
class Persons:
    """The persons of a shard, numbered from 0, and the positions of each one's records in it."""

    order: Tensor  # positions in the shard, person after person
    counts: Tensor  # records of each person, at least 1

    @classmethod
    def of(cls, unit: Tensor) -> "Persons":
        """Made from the person of each record of the shard."""
        _, person, counts = torch.unique(unit, return_inverse=True, return_counts=True)
        return cls(torch.argsort(person, stable=True), counts)

    def __len__(self) -> int:
        return len(self.counts)

    def positions(self, persons: Tensor) -> Tensor:
        """The positions of these persons' records, person after person."""
        ends = torch.cumsum(self.counts, 0)[persons].tolist()
        counts = self.counts[persons].tolist()
        parts = [self.order[end - count : end] for end, count in zip(ends, counts, strict=True)]
        return torch.cat(parts) if parts else self.order[:0]


@dataclass(frozen=True, eq=False)
class Shard:
    """Some records of a pool, by index."""

    x: Inputs  # of the whole pool
    y: Tensor  # of the whole pool
    index: Tensor  # which records of the pool are the shard's
    unit: Tensor | None = None  # the person of each record of the pool; None if each record stands for itself

    def __len__(self) -> int:
        return self.index.shape[0]  # len(tensor) takes three times as long, and every client asks in every round

    @cached_property
    def persons(self) -> Persons | None:
        """Whose records they are; None if each record stands for itself."""
        return None if self.unit is None else Persons.of(self.unit[self.index])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the records in order and of their persons: the same wherever they are kept."""
        kind = f"{self.x.dtype}{self.x.shape[1:]}" if isinstance(self.x, Tensor) else str(form_of(self.x))
        sha = hashlib.sha256(f"{kind}{self.y.dtype}{self.y.shape[1:]}{len(self)}".encode())
        for start in range(0, len(self), 4096):
            index = self.index[start : start + 4096]
            for part in (*parts_of(inputs_at(self.x, index)), self.y[index]):
                sha.update(part.contiguous().numpy().data)
        if self.persons is not None:
            sha.update(self.persons.order.contiguous().numpy().data)
            sha.update(self.persons.counts.contiguous().numpy().data)
        return sha.hexdigest()

    def take(self, positions: Tensor | None = None) -> tuple[Inputs, Tensor]:
        """The records at these positions within the shard, or all of them."""
        index = self.index if positions is None else self.index[positions]
        return inputs_at(self.x, index), self.y[index]


def inputs_at(x: Inputs, index: Tensor) -> Inputs:
    """These records of a pool; features, which are kept in half precision, become float32."""
    if isinstance(x, Tree) or x.dtype != torch.float16:
        return x[index]
    found = x.new_empty(len(index), *x.shape[1:], dtype=torch.float32)
    for places, rows in zip(torch.split(index, AT_ONCE), torch.split(found, AT_ONCE), strict=True):
        rows.copy_(x[places])  # a few rows stay in the processor's cache between the two copies
    return found
