"""Per-sample gradients in the forms that are cheap to measure and to sum: stored, or as factors of a product.

A contribution never decides a coefficient: it reports norms and what rounding may add to them, and sums as it is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfdp.privacy.clipping.groups import Span, add_outer, add_rows

Norms = tuple[Tensor, Tensor]  # per record: the norm, and a bound on how far the summed gradient's norm may exceed it


class Contribution(Protocol):
    """What one or two parameters' gradients add to the sum, record by record."""

    def norms(self) -> Norms:
        """(B,) gradient norms and their slack, in double precision."""

    def drop(self, bad: Tensor) -> None:
        """Set the records marked in `bad` to exact zeros, so that their NaN and inf cannot enter a product."""

    def add_to(self, sums: dict[str, Tensor], c: Tensor, where: Sequence[Span]) -> None:
        """Add Σ c_b·g_b to the sums, kept apart by group."""


def row_norms(rows: Tensor) -> Tensor:
    """(B,) Euclidean norms over all other dimensions."""
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    return norms.double()


def lost(count: int, dtype: torch.dtype) -> float:
    """The largest norm of `count` numbers whose squares all underflow to zero."""
    return float((count * torch.finfo(dtype).tiny) ** 0.5)


def without(rows: Tensor, bad: Tensor) -> Tensor:
    """A copy with the marked records set to zero; the tensor given may be the caller's own input."""
    return rows.masked_fill(bad.view(-1, *[1] * (rows.dim() - 1)), 0)


@dataclass
class Stored:
    """The per-sample gradients of one parameter, held as numbers, (B, …), in an order of their own if one is given."""

    name: str
    rows: Tensor
    order: tuple[int, ...] | None = None  # the permutation of a row's dimensions that gives the parameter's

    def arranged(self) -> Tensor:
        """(B, …) with the parameter's order of numbers."""
        return self.rows if self.order is None else self.rows.permute(0, *(i + 1 for i in self.order))

    def norms(self) -> Norms:
        norm = row_norms(self.rows)
        return norm, torch.full_like(norm, lost(self.rows[0:1].numel(), self.rows.dtype))

    def drop(self, bad: Tensor) -> None:
        self.rows = without(self.rows, bad)

    def add_to(self, sums: dict[str, Tensor], c: Tensor, where: Sequence[Span]) -> None:
        total = sums[self.name]
        if self.order is None:
            add_rows(total, self.rows, c, where)
            return
        own = self.rows.new_zeros(len(total), *self.rows.shape[1:])
        add_rows(own, self.rows, c, where)
        total += Stored(self.name, own, self.order).arranged().reshape(total.shape)


@dataclass
class Outer:
    """A linear layer that saw one row a record: the gradient is g ⊗ a, its norm ‖g‖·‖a‖ without ever forming it."""

    weight: str | None
    bias: str | None
    a: Tensor  # (B, in)
    g: Tensor  # (B, out)

    def norms(self) -> Norms:
        g, lost_g = row_norms(self.g), lost(self.g.shape[1], self.g.dtype)
        if self.weight is None:
            return g, torch.full_like(g, lost_g)
        a, lost_a = row_norms(self.a), lost(self.a.shape[1], self.a.dtype)
        if self.bias is not None:
            a = torch.hypot(a, torch.ones_like(a))  # the bias is a weight on a constant input of 1
        return g * a, lost_g * a + g * lost_a + lost_g * lost_a

    def drop(self, bad: Tensor) -> None:
        self.a, self.g = without(self.a, bad), without(self.g, bad)

    def add_to(self, sums: dict[str, Tensor], c: Tensor, where: Sequence[Span]) -> None:
        if self.bias is not None:
            add_rows(sums[self.bias], self.g, c, where)
        if self.weight is not None:
            add_outer(sums[self.weight], self.g * c[:, None], self.a, where)


@dataclass
class Gram:
    """A wide linear layer over L rows a record: ‖Σ_t g_t ⊗ a_t‖² = Σ_ts (a_t·a_s)(g_t·g_s), with no gradient formed."""

    weight: str
    a: Tensor  # (B, L, in)
    g: Tensor  # (B, L, out)

    def norms(self) -> Norms:
        step = max(1, 2**22 // self.a.shape[1] ** 2)
        squares = [
            torch.einsum("bts,bts->b", a @ a.mT, g @ g.mT)
            for a, g in zip(torch.split(self.a, step), torch.split(self.g, step), strict=True)
        ]
        norm = torch.cat(squares).double().clamp_min(0).sqrt()
        # Terms of opposite sign cancel, here and in the sum: rounding is relative to ‖a‖·‖g‖, not to the norm.
        a, g = row_norms(self.a), row_norms(self.g)
        unit, size = 4 * torch.finfo(self.a.dtype).eps, a * g
        rounding = unit * size * (size / norm.clamp_min(1e-300)).clamp(1, unit**-0.5)
        lost_a, lost_g = lost(self.a[0].numel(), self.a.dtype), lost(self.g[0].numel(), self.g.dtype)
        return norm, rounding + lost_g * a + g * lost_a + lost_g * lost_a

    def drop(self, bad: Tensor) -> None:
        self.a, self.g = without(self.a, bad), without(self.g, bad)

    def add_to(self, sums: dict[str, Tensor], c: Tensor, where: Sequence[Span]) -> None:
        add_outer(sums[self.weight], self.g * c[:, None, None], self.a, where)


@dataclass
class Sparse:
    """An embedding: each record touches a few rows of the table, with one gradient for each (record, row)."""

    name: str
    record: Tensor  # (U,) record of each entry
    row: Tensor  # (U,) table row of each entry
    values: Tensor  # (U, width)
    batch: int

    def norms(self) -> Norms:
        squares = self.values.new_zeros(self.batch, dtype=torch.float64)
        squares.index_add_(0, self.record, row_norms(self.values).square())
        floor = lost(1, self.values.dtype) * self.values.shape[1:].numel() ** 0.5
        entries = torch.zeros_like(squares).index_add_(
            0, self.record, torch.ones_like(self.record, dtype=torch.float64)
        )
        return squares.sqrt(), floor * entries.sqrt()

    def drop(self, bad: Tensor) -> None:
        self.values = without(self.values, bad[self.record])

    def add_to(self, sums: dict[str, Tensor], c: Tensor, where: Sequence[Span]) -> None:
        table = sums[self.name]
        group = torch.empty(self.batch, dtype=torch.long, device=self.row.device)
        for span in where:
            group[span.start : span.stop] = span.group
        weighted = self.values * c[self.record, None]
        table.flatten(0, 1).index_add_(0, group[self.record] * table.shape[1] + self.row, weighted)
