"""Where a value of a pass keeps its records: along one dimension, in no order that is known, or nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Reference(NamedTuple):
    """Which value a tensor is: ("value", number), ("own", a parameter's or buffer's name), ("outside", number)."""

    kind: str
    name: int | str


class Rows(NamedTuple):
    """Dimension `dim` runs over (before, records, after)."""

    dim: int
    before: int
    after: int

    def take(self, tensor: Tensor, records: int, record: int) -> Tensor:
        """One record of the tensor; the dimension stays."""
        left, right = tensor.shape[: self.dim], tensor.shape[self.dim + 1 :]
        apart = tensor.reshape(*left, self.before, records, self.after, *right)
        return apart.select(self.dim + 1, record).reshape(*left, self.before * self.after, *right)

    def repeat(self, part: Tensor, records: int) -> Tensor:
        """The tensor in which every record is this one, as `take` gives it."""
        left, right = part.shape[: self.dim], part.shape[self.dim + 1 :]
        apart = part.reshape(*left, self.before, 1, self.after, *right)
        whole = apart.expand(*left, self.before, records, self.after, *right)
        return whole.reshape(*left, self.before * records * self.after, *right)

    def first(self, tensor: Tensor, records: int) -> Tensor:
        """(B, …): each record as `take` gives it, one after the other."""
        left, right = tensor.shape[: self.dim], tensor.shape[self.dim + 1 :]
        apart = tensor.reshape(*left, self.before, records, self.after, *right).movedim(self.dim + 1, 0)
        return apart.reshape(records, *left, self.before * self.after, *right)


@dataclass(frozen=True)
class Mixed:
    """Records may have met in this value, and why."""

    reason: str


class Order(NamedTuple):
    """The index vector 0 … B − 1, allowed only for picking from each record its own, as in x[arange(B), last].

    It may have more dimensions behind, of size 1.
    """

    more: int = 0

    def of(self, records: int, device: torch.device) -> Tensor:
        """The index itself."""
        return torch.arange(records, device=device).view(-1, *[1] * self.more)


Place = Rows | Mixed | Order | None  # None: the value does not depend on the records


@dataclass(frozen=True)
class Meeting:
    """A call in which values made of parameters alone meet the records."""

    weights: frozenset[Reference]
    places: Mapping[Reference, Place]  # of all that the call reads
    results: tuple[Place, ...]  # of what it makes, then of what it changes
    pattern: tuple[object, ...]  # its key, with a Size for what grows with the records
