"""Which rows of a chunk of records belong to which group (a client, say), and weighted sums of rows for each group.

Never scales by a coefficient it was not given, and never loops over records.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.native import grouped_sums

FEW = 4  # up to here a product for each group is faster than one call for all


@dataclass(frozen=True)
class Groups:
    """Consecutive groups of a chunk: group `first + k` has the rows from bounds[k] to bounds[k + 1], perhaps none."""

    first: int
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Iterable[int]) -> "Groups":
        """Groups of these sizes, one after the other."""
        return cls(0, (0, *itertools.accumulate(sizes)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def times(self, rows: int) -> "Groups":
        """The same groups where every record has several rows."""
        return Groups(self.first, tuple(bound * rows for bound in self.bounds))

    def within(self, start: int, stop: int) -> "Groups":
        """The groups that have rows in [start, stop), with bounds counted from `start`."""
        first = next(k for k, high in enumerate(self.bounds[1:]) if high > start)
        last = next(k for k, high in enumerate(self.bounds[1:]) if high >= stop)
        ends = self.bounds[first + 1 : last + 2]
        return Groups(self.first + first, (0, *(min(end, stop) - start for end in ends)))

    def with_rows(self, rows: int) -> "Groups":
        """The same groups with rows added to the last, up to this many."""
        return Groups(self.first, (*self.bounds[:-1], rows))

    def of_rows(self, device: torch.device) -> Tensor:
        """(B,) the group of each row, counted from `first`."""
        sizes = torch.tensor(self.bounds).diff()
        return torch.arange(len(self)).repeat_interleave(sizes).to(device)


class Sums:
    """The sums of all parameters in one matrix with a row per group: what is done to a whole row is one operation.

    `totals` has them by parameter name as (groups, *parameter shape), after `done` was called.
    """

    def __init__(self, params: Mapping[str, Tensor], groups: int) -> None:
        like = next(iter(params.values()))
        self.shapes = tuple((name, tuple(parameter.shape)) for name, parameter in params.items())
        sizes = [parameter.numel() for parameter in params.values()]
        dtypes = {parameter.dtype for parameter in params.values()}
        self.rows = like.new_empty(groups, sum(sizes), dtype=functools.reduce(torch.promote_types, dtypes))
        parts = torch.split(self.rows, sizes, dim=1)
        named = zip(self.shapes, parts, strict=True)
        self.totals = {name: part.view(groups, *shape) for (name, shape), part in named}
        self._sizes = dict(zip(params, sizes, strict=True))
        self._first = dict(zip(params, itertools.accumulate(sizes, initial=0), strict=False))
        self._begun: set[str] = set()

    def _room(self, name: str, groups: Groups) -> Tensor | None:
        """Where to write a parameter's first contribution, if it covers all groups; None: it must be added."""
        if name in self._begun or len(groups) != self.rows.shape[0]:
            return None
        self._begun.add(name)
        return self.totals[name]

    def add(self, name: str, groups: Groups, total: Tensor) -> None:
        """Add (len(groups), …), given in the parameter's own order of numbers."""
        room = self._room(name, groups)
        if room is not None:
            room.copy_(total.reshape(room.shape))
            return
        if name not in self._begun:
            self._begun.add(name)
            self.totals[name].zero_()
        part = self.totals[name][groups.first : groups.first + len(groups)]
        part += total.reshape(part.shape)

    def add_rows(
        self, name: str, groups: Groups, rows: Tensor, c: Tensor, order: tuple[int, ...] | None = None
    ) -> None:
        """Add Σ_b c_b·rows_b over the rows b of each group; `order` permutes a row's dimensions to the parameter's."""
        matrix = as_matrix(rows)
        self._check(name, matrix.shape[1])
        if grouped_sums.fits(groups.bounds, rows, c, self.rows) and self._room(name, groups) is not None:
            source = _source(tuple(rows.shape[1:]), order)
            grouped_sums.put_rows(self.rows, self._first[name], matrix, c, groups.bounds, source)
            return
        if rows.dtype == c.dtype == self.rows.dtype and len(groups) == 1:
            room = self._room(name, groups)
            if room is not None and order is None:
                torch.mv(matrix.T, c, out=room.view(-1))
                return
            if room is not None and order is not None:
                total = torch.mv(matrix.T, c).view(rows.shape[1:])
                room.copy_(total.permute(order).reshape(room.shape))
                return
        self.add(name, groups, arranged(sum_rows(rows, c, groups), order))

    def add_outer(self, name: str, groups: Groups, left: Tensor, right: Tensor) -> None:
        """Add Σ_b left_b ⊗ right_b over the rows b of each group, written in place where it is the first."""
        self._check(name, left.shape[1] * right.shape[1])
        left, right = alike(left, right)
        room = self._room(name, groups) if left.dtype == self.rows.dtype else None
        if room is not None and grouped_sums.fits(groups.bounds, left, self.rows):
            grouped_sums.put_outer(self.rows, self._first[name], left, right, groups.bounds)
            return
        total = sum_outer(left, right, groups, out=room)
        if room is None:
            self.add(name, groups, total)

    def _check(self, name: str, numbers: int) -> None:
        """Rows of another size would be written over a neighbour's."""
        if numbers != self._sizes[name]:
            raise ValueError(f"{name}: {numbers} numbers for {self._sizes[name]}")

    def done(self) -> Tensor:
        """(groups, d): every group's sums; zeros where nothing was added."""
        for name, total in self.totals.items():
            if name not in self._begun:
                total.zero_()
        return self.rows


@functools.cache
def _source(shape: tuple[int, ...], order: tuple[int, ...] | None) -> Tensor:
    """Where in a row each number comes from when its dimensions are permuted."""
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.int32)
    return numbers if order is None else numbers.view(shape).permute(order).flatten()


def arranged(rows: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """Rows with the dimensions of each permuted."""
    return rows if order is None else rows.permute(0, *(i + 1 for i in order))


def as_matrix(rows: Tensor) -> Tensor:
    """(B, width) from (B, …); a parameter that is a single number has rows of one."""
    if rows.dim() == 2:
        return rows
    return rows[:, None] if rows.dim() == 1 else rows.flatten(1)


def alike(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their precisions, where a model mixes them."""
    if left.dtype == right.dtype:
        return left, right
    dtype = torch.promote_types(left.dtype, right.dtype)
    return left.to(dtype), right.to(dtype)


def sum_rows(rows: Tensor, c: Tensor, groups: Groups) -> Tensor:
    """(K, …): Σ_b c_b·rows_b over the rows b of each group; rows is (B, …)."""
    (flat, c), bounds = alike(as_matrix(rows), c), groups.bounds
    if len(groups) <= FEW:
        parts = [flat[low:high].T.mv(c[low:high]) for low, high in itertools.pairwise(bounds)]
        total = torch.stack(parts) if len(parts) > 1 else parts[0]
    else:
        index = torch.arange(len(flat), device=rows.device)
        total = functional.embedding_bag(
            index,
            flat,
            torch.tensor(bounds, device=rows.device),
            mode="sum",
            per_sample_weights=c,
            include_last_offset=True,
        )
    return total.view(len(groups), *rows.shape[1:])


def sum_outer(left: Tensor, right: Tensor, groups: Groups, out: Tensor | None = None) -> Tensor:
    """(K, o, i): Σ_b left_b ⊗ right_b over the rows b of each group; left is (B, o), right (B, i)."""
    left, right = alike(left, right)
    total = left.new_empty(len(groups), left.shape[1], right.shape[1]) if out is None else out
    # A product for each group: padding groups to equal size, for one call, copies all rows and takes longer.
    for k, (low, high) in enumerate(itertools.pairwise(groups.bounds)):
        torch.mm(left[low:high].T, right[low:high], out=total[k])
    return total
