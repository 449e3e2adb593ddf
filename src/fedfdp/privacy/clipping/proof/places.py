"""Where a value of a pass keeps its records: along one dimension, in no order that is known, or nowhere."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import Size


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


@dataclass(frozen=True)
class Mixed:
    """Records may have met in this value, and why."""

    reason: str


class Order(NamedTuple):
    """The index vector 0 … B − 1: allowed only for picking one element per record, as in x[arange(B), last]."""


Place = Rows | Mixed | Order | None  # None: the value does not depend on the records
Shape = tuple[int | Size, ...]
