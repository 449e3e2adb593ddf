"""Gradients that are products, left as their factors: of large weights, and of weights that several calls share.

Never holds a gradient of a large weight for more than a few records.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedfdp.privacy.clipping.contributions import ROUNDING, STORE, Contribution, Norms, Stored, row_norms, without
from fedfdp.privacy.clipping.groups import Groups, Sums, alike, sum_outer

FORMED = 2**22  # numbers of gradients that are formed at a time only to be measured


@dataclass(frozen=True)
class Factors:
    """A gradient Σ_t left_t ⊗ right_t over L rows of a record. A side of whole numbers picks a row, or a column."""

    left: Tensor  # (B, L, height), or (B, L) of whole numbers below `height`
    right: Tensor  # (B, L, width), or (B, L) of whole numbers below `width`
    height: int
    width: int

    @property
    def picks_left(self) -> bool:
        return self.left.dim() == 2

    @property
    def picks_right(self) -> bool:
        return self.right.dim() == 2

    @property
    def rows(self) -> int:
        return self.left.shape[1]

    def swapped(self) -> "Factors":
        """The factors of the transposed gradient."""
        return Factors(self.right, self.left, self.width, self.height)

    def part(self, start: int, stop: int) -> "Factors":
        """Those of some of the records."""
        return Factors(self.left[start:stop], self.right[start:stop], self.height, self.width)

    def dense(self) -> Tensor:
        """(B, height, width): the gradient itself."""
        if self.picks_right:
            return self.swapped().dense().mT
        if not self.picks_left:
            left, right = alike(self.left, self.right)
            return left.mT @ right if self.height <= self.width else (right.mT @ left).mT
        records = len(self.left)
        place = self.left + self.height * torch.arange(records, device=self.left.device)[:, None]
        table = self.right.new_zeros(records * self.height, self.width)
        return table.index_add_(0, place.flatten(), self.right.flatten(0, 1)).view(records, self.height, self.width)

    def total(self, c: Tensor, groups: Groups) -> Tensor:
        """(K, height, width): Σ_b c_b·g_b over the records of each group."""
        if self.picks_right:
            return self.swapped().total(c, groups).mT
        right = self.right * c[:, None, None]
        if not self.picks_left:
            return sum_outer(self.left.flatten(0, 1), right.flatten(0, 1), groups.times(self.rows))
        place = groups.of_rows(self.left.device)[:, None] * self.height + self.left
        table = right.new_zeros(len(groups) * self.height, self.width)
        return table.index_add_(0, place.flatten(), right.flatten(0, 1)).view(len(groups), self.height, self.width)


def stored(name: str, left: Tensor, right: Tensor) -> Stored:
    """The gradient Σ_t left_t ⊗ right_t, held as numbers.

    With the narrow side first the product takes a third of the time where that is as narrow as an adapter's.
    """
    if left.shape[2] <= right.shape[2]:
        return Stored(name, left.mT @ right)
    return Stored(name, right.mT @ left, (1, 0))


def joined(name: str, factors: list[Factors]) -> Contribution:
    """The contribution of a parameter whose gradient is the sum of these."""
    kinds: dict[tuple[bool, bool], list[Factors]] = {}
    for part in factors:
        kinds.setdefault((part.picks_left, part.picks_right), []).append(part)
    merged = [_side_by_side(parts) for parts in kinds.values()]
    first, numbers = merged[0], merged[0].height * merged[0].width
    if numbers <= STORE:
        total = first.dense()
        for part in merged[1:]:
            total = total + part.dense()
        return Stored(name, total)
    return Product(name, merged)


def _side_by_side(parts: list[Factors]) -> Factors:
    if len(parts) == 1:
        return parts[0]
    left, right = (torch.cat([getattr(part, side) for part in parts], 1) for side in ("left", "right"))
    return Factors(left, right, parts[0].height, parts[0].width)


def _inner(one: Tensor, other: Tensor) -> Tensor:
    """(B, L, M): inner products of the rows of two sides, of which either may pick instead."""
    if one.dim() == 3 and other.dim() == 3:
        return one @ other.mT
    if one.dim() == 2 and other.dim() == 2:
        return one[:, :, None] == other[:, None, :]
    if one.dim() == 2:
        return _inner(other, one).mT
    return one.gather(2, other[:, None, :].expand(-1, one.shape[1], -1))


@dataclass
class Product:
    """A large weight: the gradient is never stored. It is measured by inner products, or formed for a few records."""

    name: str
    factors: list[Factors]
    held: ClassVar[int] = 0

    @property
    def _by_inner_products(self) -> bool:
        """Whether inner products of all pairs of rows are cheaper than the gradient of a record."""
        rows, one = sum(part.rows for part in self.factors), self.factors[0]
        return rows * (one.height + one.width) < one.height * one.width

    def norms(self) -> Norms:
        if not self._by_inner_products:
            return self._formed()
        one = self.factors[0]
        records, total = len(one.left), sum(part.rows for part in self.factors)
        step = max(1, FORMED // total**2)
        parts = [self._measured(start, min(start + step, records)) for start in range(0, records, step)]
        square, size = (torch.cat(column) for column in zip(*parts, strict=True))
        floats = one.left.dtype if one.left.is_floating_point() else one.right.dtype
        least = total**2 * torch.finfo(floats).tiny / ROUNDING
        norm, unit = square.double().clamp_min(least).sqrt(), 4 * torch.finfo(floats).eps
        # As in Gram: what is lost to rounding is relative to the factors, not to their sum, in which terms may cancel.
        return norm, unit * size * (size / norm).clamp(1, unit**-0.5)

    def _measured(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The squared norms, and the sizes that rounding is relative to."""
        parts = [part.part(start, stop) for part in self.factors]
        square: Tensor | float = 0.0
        size: Tensor | float = 0.0
        for i, one in enumerate(parts):
            for other in parts[i:]:
                both = _inner(one.left, other.left) * _inner(one.right, other.right)
                square = square + (1 if other is one else 2) * both.sum((1, 2))
            size = size + _size(one.left) * _size(one.right)
        assert isinstance(square, Tensor)
        assert isinstance(size, Tensor)
        return square, size

    def _formed(self) -> Norms:
        one = self.factors[0]
        step = max(1, FORMED // (one.height * one.width))
        found = []
        for start in range(0, len(one.left), step):
            dense = [part.part(start, start + step).dense() for part in self.factors]
            found.append(row_norms(functools.reduce(torch.add, dense)))
        # The sum over records is formed once more, in another order: its rounding is relative to the factors.
        size = functools.reduce(torch.add, [_size(part.left) * _size(part.right) for part in self.factors])
        floats = one.left.dtype if one.left.is_floating_point() else one.right.dtype
        return torch.cat(found), 4 * torch.finfo(floats).eps * size

    def drop(self, bad: Tensor) -> None:
        self.factors = [
            Factors(_without_rows(part.left, bad), _without_rows(part.right, bad), part.height, part.width)
            for part in self.factors
        ]

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        for part in self.factors:
            sums.add(self.name, groups, part.total(c, groups))


def _without_rows(side: Tensor, bad: Tensor) -> Tensor:
    return without(side, bad) if side.dim() == 3 else side  # whichever row is picked, nothing is added to it


def _size(side: Tensor) -> Tensor:
    """The Euclidean norm of a side, (B,): rows that pick have a norm of 1 each."""
    if side.dim() == 3:
        return row_norms(side)
    return torch.full((len(side),), math.sqrt(side.shape[1]), dtype=torch.float64, device=side.device)
