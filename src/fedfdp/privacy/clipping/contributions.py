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

from fedfdp.privacy.clipping.groups import Groups, Sums, arranged, as_matrix, sum_outer

# Per record: the norm, and by how much rounding may make the summed gradient longer (None: within ROUNDING).
Norms = tuple[Tensor, Tensor | None]
# The relative rounding that single precision is allowed: ‖c·g‖ ≤ C·(1 + ROUNDING). At most BLOCK squares are added up
# in single precision, which leaves an error of 2e-6. Numbers so small that their squares would be lost count as larger.
ROUNDING = 1e-5
BLOCK = 2048
STORE = 2**16  # weights up to this many are stored per record; larger ones stay products of factors
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
    # Summed over strides, 2048 squares drift by more than is allowed.
    rows = as_matrix(rows).to(_at_least_single(rows.dtype)).contiguous()
    width = rows.shape[1]
    floor = math.sqrt(width * torch.finfo(rows.dtype).tiny / ROUNDING)
    if width <= BLOCK:
        return _norms(rows).double().clamp_min_(floor)
    # One long sum in single precision drifts by more than is allowed; a sum of short ones does not.
    whole = width - width % BLOCK
    blocks = [_norms(rows[:, :whole].view(len(rows), -1, BLOCK)), _norms(rows[:, None, whole:])]
    return _norms(torch.cat(blocks, 1).double()).clamp_min_(floor)


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Half precision rounds by far more than ROUNDING."""
    return torch.promote_types(dtype, torch.float32)


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


def total_norms(contributions: list[Contribution], batch: int, like: Tensor) -> Norms:
    """(B,) norms over all parameters, in the precision of `like` or in single precision, and their slack."""
    if not contributions:
        return like.new_zeros(batch, dtype=_at_least_single(like.dtype)), None
    norms, slacks = zip(*(contribution.norms() for contribution in contributions), strict=True)
    loose = [slack for slack in slacks if slack is not None]
    norm = functools.reduce(torch.hypot, norms).to(_at_least_single(like.dtype))
    return norm, torch.stack(loose).sum(0) if loose else None
