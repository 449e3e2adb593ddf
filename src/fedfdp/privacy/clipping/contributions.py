"""Per-record gradients in the forms that are cheap to measure and to sum: stored, or as factors of a product.

A contribution never decides a coefficient. It reports norms and what rounding may add to them, and sums as it is told.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedfdp.privacy.clipping.groups import Groups, Sums, alike, arranged, as_matrix, sum_outer

# Per record: the norm, and by how much rounding may make the summed gradient longer (None: within ROUNDING).
Norms = tuple[Tensor, Tensor | None]
# The relative rounding that single precision is allowed: ‖c·g‖ ≤ C·(1 + ROUNDING). At most BLOCK squares are added up
# in single precision, which leaves an error of 2e-6. Numbers so small that their squares would be lost count as larger.
ROUNDING = 1e-5
BLOCK = 2048
STORE = 2**16  # weights up to this many are stored per record; larger ones stay products of factors
FORMED = 2**22  # numbers of gradients that are formed at a time only to be measured
_ONE = torch.ones((), dtype=torch.float64)


class Contribution(Protocol):
    """What one or two parameters' gradients add to the sum, record by record."""

    @property
    def held(self) -> int:
        """How many numbers it holds for all records, beside the inputs and output gradients that calls hold anyway."""

    def norms(self) -> Norms:
        """(B,) gradient norms, and their slack where it can exceed ROUNDING."""

    def drop(self, bad: Tensor) -> None:
        """Set the records marked in `bad` to exact zeros, so that their NaN and inf cannot enter a product."""

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        """Add Σ c_b·g_b to the sums, kept apart by group."""


def row_norms(rows: Tensor) -> Tensor:
    """(B,) Euclidean norms over all other dimensions, in double, not below the size where squares underflow."""
    rows = as_matrix(rows).contiguous()  # summed over strides, 2048 squares drift by more than is allowed
    width = rows.shape[1]
    floor = math.sqrt(width * torch.finfo(rows.dtype).tiny / ROUNDING)
    if width <= BLOCK:
        return _norms(rows).double().clamp_min_(floor)
    # One long sum in single precision drifts by more than is allowed; a sum of short ones does not.
    whole = width - width % BLOCK
    blocks = [_norms(rows[:, :whole].view(len(rows), -1, BLOCK)), _norms(rows[:, None, whole:])]
    return _norms(torch.cat(blocks, 1).double()).clamp_min_(floor)


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms


def without(rows: Tensor, bad: Tensor) -> Tensor:
    """A copy with the marked records set to zero; the tensor given may be the caller's own input."""
    return rows.masked_fill(bad.view(-1, *[1] * (rows.dim() - 1)), 0)


@dataclass
class Stored:
    """The per-record gradients of one parameter, held as numbers, (B, …), in an order of their own if one is given."""

    name: str
    rows: Tensor
    order: tuple[int, ...] | None = None  # the permutation of a row's dimensions that gives the parameter's

    @property
    def held(self) -> int:
        return self.rows.numel()

    def norms(self) -> Norms:
        return row_norms(self.rows), None

    def drop(self, bad: Tensor) -> None:
        self.rows = without(self.rows, bad)

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        sums.add_rows(self.name, groups, self.rows, c, self.order)


@dataclass
class Outer:
    """A linear layer that saw one row per record: the gradient is g ⊗ a, its norm ‖g‖·‖a‖ without ever forming it."""

    weight: str | None
    bias: str | None
    a: Tensor  # (B, in)
    g: Tensor  # (B, out)
    held: ClassVar[int] = 0

    def norms(self) -> Norms:
        if self.weight is None:
            return row_norms(self.g), None
        a = row_norms(self.a)
        if self.bias is not None:
            a = torch.hypot(a, _ONE)  # the bias is a weight on a constant input of 1
        return a * row_norms(self.g), None

    def drop(self, bad: Tensor) -> None:
        self.a, self.g = without(self.a, bad), without(self.g, bad)

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        if self.bias is not None:
            sums.add_rows(self.bias, groups, self.g, c)
        if self.weight is not None:
            sums.add_outer(self.weight, groups, self.g * c[:, None], self.a)


@dataclass
class Gram:
    """A wide layer over L rows per record: ‖Σ_t g_t ⊗ a_t‖² = Σ_ts (a_t·a_s)(g_t·g_s), with no gradient formed."""

    weight: str
    factors: Callable[[int, int], tuple[Tensor, Tensor]]  # a (n, L, in) and g (n, L, out) of the records asked for
    batch: int
    step: int  # how many records to ask for at a time
    order: tuple[int, ...] | None = None  # from (out, in) to the parameter's order of numbers
    inner: tuple[int, ...] = (-1,)  # the dimensions of `in`
    bad: Tensor | None = None
    held: ClassVar[int] = 0

    def _parts(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        for start in range(0, self.batch, self.step):
            a, g = self.factors(start, min(start + self.step, self.batch))
            if self.bad is not None:
                bad = self.bad[start : start + self.step]
                a, g = without(a, bad), without(g, bad)
            yield start, a, g

    def norms(self) -> Norms:
        squares, sizes, length = [], [], 0
        for _, a, g in self._parts():
            length = a.shape[1]
            squares.append(((a @ a.mT) * (g @ g.mT)).sum((1, 2)))
            sizes.append(row_norms(a) * row_norms(g))
        # Each of the L² products may be lost below the normal range. And terms of opposite sign cancel, here and in the
        # sum: rounding is relative to ‖a‖·‖g‖, not to the norm.
        least = length**2 * torch.finfo(squares[0].dtype).tiny / ROUNDING
        norm, size = torch.cat(squares).double().clamp_min(least).sqrt(), torch.cat(sizes)
        unit = 4 * torch.finfo(squares[0].dtype).eps
        return norm, unit * size * (size / norm).clamp(1, unit**-0.5)

    def drop(self, bad: Tensor) -> None:
        self.bad = bad

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        for start, a, g in self._parts():
            part = groups.within(start, start + len(a))
            weighted = (g * c[start : start + len(a), None, None]).flatten(0, 1)
            total = sum_outer(weighted, a.flatten(0, 1), part.times(a.shape[1]))
            sums.add(self.weight, part, arranged(total.view(*total.shape[:2], *self.inner), self.order))


@dataclass
class Sparse:
    """An embedding: each record touches a few rows of the table, with one gradient for each (record, row)."""

    name: str
    record: Tensor  # (U,) record of each entry
    row: Tensor  # (U,) table row of each entry
    values: Tensor  # (U, width)
    batch: int
    height: int  # rows of the table
    held: ClassVar[int] = 0  # no more values than the output's gradient has

    def norms(self) -> Norms:
        squares = self.values.new_zeros(self.batch, dtype=torch.float64)
        return squares.index_add_(0, self.record, row_norms(self.values).square()).sqrt(), None

    def drop(self, bad: Tensor) -> None:
        self.values = without(self.values, bad[self.record])

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        values = self.values * c[self.record, None]
        table = values.new_zeros(len(groups) * self.height, values.shape[1])
        place = groups.of_rows(self.row.device)[self.record] * self.height + self.row
        sums.add(self.name, groups, table.index_add_(0, place, values))


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
            return left.mT @ right
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


def joined(name: str, factors: list[Factors]) -> "Contribution":
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
            Factors(*(without(s, bad) if s.dim() == 3 else s for s in (part.left, part.right)), part.height, part.width)
            for part in self.factors
        ]

    def add_to(self, sums: Sums, c: Tensor, groups: Groups) -> None:
        for part in self.factors:
            sums.add(self.name, groups, part.total(c, groups))


def _size(side: Tensor) -> Tensor:
    """The Euclidean norm of a side, (B,): rows that pick have a norm of 1 each."""
    if side.dim() == 3:
        return row_norms(side)
    return torch.full((len(side),), math.sqrt(side.shape[1]), dtype=torch.float64, device=side.device)


def total_norms(contributions: list[Contribution], batch: int, like: Tensor) -> Norms:
    """(B,) norms over all parameters, in the precision of `like`, and their slack."""
    if not contributions:
        return like.new_zeros(batch), None
    norms, slacks = zip(*(contribution.norms() for contribution in contributions), strict=True)
    loose = [slack for slack in slacks if slack is not None]
    return functools.reduce(torch.hypot, norms).to(like.dtype), torch.stack(loose).sum(0) if loose else None
