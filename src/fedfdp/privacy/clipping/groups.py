"""Which rows of a chunk of records belong to which group, and weighted sums of rows kept apart by group.

Never scales by a coefficient it was not given, and never loops over records.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

FEW = 4  # up to here a product for each group is faster than one call for all
PADDED = 4  # groups are padded to equal size as long as this many times the records are enough


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

    def of_rows(self, device: torch.device) -> Tensor:
        """(B,) the group of each row, counted from `first`."""
        sizes = torch.tensor(self.bounds).diff()
        return torch.arange(len(self)).repeat_interleave(sizes).to(device)


class Sums:
    """The groups' sums by parameter name; a first contribution is taken as it is, later ones are added."""

    def __init__(self, params: Mapping[str, Tensor], groups: int) -> None:
        self._params, self._groups = params, groups
        self._totals: dict[str, Tensor] = {}

    def add(self, name: str, groups: Groups, total: Tensor) -> None:
        """Add (len(groups), …), given in the parameter's own order of numbers."""
        total = total.reshape(len(groups), *self._params[name].shape)
        if name not in self._totals and len(groups) == self._groups:
            self._totals[name] = total.contiguous()
        else:
            self._total(name)[groups.first : groups.first + len(groups)] += total

    def _total(self, name: str) -> Tensor:
        if name not in self._totals:
            parameter = self._params[name]
            self._totals[name] = parameter.new_zeros(self._groups, *parameter.shape)
        return self._totals[name]

    def totals(self) -> dict[str, Tensor]:
        """(groups, *parameter shape) for every parameter; zeros where nothing was added."""
        return {name: self._total(name).detach() for name in self._params}


def sum_rows(rows: Tensor, c: Tensor, groups: Groups) -> Tensor:
    """(K, …): Σ_b c_b·rows_b over the rows b of each group; rows is (B, …)."""
    flat, bounds = rows.flatten(1), groups.bounds
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


def sum_outer(left: Tensor, right: Tensor, groups: Groups) -> Tensor:
    """(K, o, i): Σ_b left_b ⊗ right_b over the rows b of each group; left is (B, o), right (B, i)."""
    bounds = groups.bounds
    if len(groups) == 1:
        return (left.T @ right)[None]
    widest = max(high - low for low, high in itertools.pairwise(bounds))
    if len(groups) <= FEW or len(groups) * widest > PADDED * len(left):
        total = left.new_empty(len(groups), left.shape[1], right.shape[1])
        for k, (low, high) in enumerate(itertools.pairwise(bounds)):
            torch.mm(left[low:high].T, right[low:high], out=total[k])
        return total
    group = groups.of_rows(left.device)
    place = torch.arange(len(left), device=left.device) - torch.tensor(bounds, device=left.device)[group]
    padded = [part.new_zeros(len(groups), widest, part.shape[1]) for part in (left, right)]
    for store, part in zip(padded, (left, right), strict=True):
        store[group, place] = part
    return padded[0].mT @ padded[1]
