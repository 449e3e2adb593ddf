"""Weighted sums over many small groups of records as compiled loops: in single precision, on a CPU.

A library's product takes longer to call than a few records take to add up. Each group's sums are written once, in
their place. Never scales by a coefficient it was not given.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.compiled import compiled
from fedfdp.parallel import for_each

Matrix = NDArray[np.float32]
Whole = NDArray[np.int64]
MOST = 16  # records of a group, on average; beyond, the library is faster


def fits(bounds: tuple[int, ...], *tensors: Tensor) -> bool:
    """Whether these are many small groups of numbers that the loops take."""
    groups = len(bounds) - 1
    plain = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
    if not plain or groups <= MOST or bounds[-1] > MOST * groups:
        return False
    # One record is added after the other: in a long sum rounding would add up.
    return max(high - low for low, high in itertools.pairwise(bounds)) <= 4 * MOST


def put_rows(into: Tensor, first: int, rows: Tensor, c: Tensor, bounds: tuple[int, ...], source: Tensor) -> None:
    """into[k, first + j] ← Σ_b c_b·rows_b,source_j over the rows b of group k."""
    signature = "void(float32[:, ::1], int64, float32[:, ::1], float32[::1], int64[::1], int32[::1], int64, int64)"
    numbers = (into.numpy(), first, rows.contiguous().numpy(), c.contiguous().numpy(), _whole(bounds), source.numpy())
    _share(compiled(_put_rows, signature), numbers, len(into))


def put_outer(into: Tensor, first: int, left: Tensor, right: Tensor, bounds: tuple[int, ...]) -> None:
    """into[k, first + o·width + i] ← Σ_b left_bo·right_bi over the rows b of group k."""
    signature = "void(float32[:, ::1], int64, float32[:, ::1], float32[:, ::1], int64[::1], int64, int64)"
    numbers = (into.numpy(), first, left.contiguous().numpy(), right.contiguous().numpy(), _whole(bounds))
    _share(compiled(_put_outer, signature), numbers, len(into))


def _whole(bounds: tuple[int, ...]) -> Whole:
    return np.array(bounds, dtype=np.int64)


def _share(loop: Callable[..., None], numbers: tuple[Any, ...], groups: int) -> None:
    """The loop over all groups, on all threads."""
    each = -(-groups // (4 * torch.get_num_threads()))
    for_each(lambda start: loop(*numbers, start, min(start + each, groups)), range(0, groups, each))


def _put_rows(
    into: Matrix, first: int, rows: Matrix, c: Matrix, bounds: Whole, source: Whole, start: int, stop: int
) -> None:
    total = np.empty(rows.shape[1], dtype=np.float32)
    for k in range(start, stop):
        total[:] = 0
        for b in range(bounds[k], bounds[k + 1]):
            row, factor = rows[b], c[b]
            for j in range(len(total)):
                total[j] += factor * row[j]
        place = into[k, first : first + len(total)]
        for j in range(len(total)):
            place[j] = total[source[j]]


def _put_outer(into: Matrix, first: int, left: Matrix, right: Matrix, bounds: Whole, start: int, stop: int) -> None:
    width = right.shape[1]
    for k in range(start, stop):
        for o in range(left.shape[1]):
            total = into[k, first + o * width : first + (o + 1) * width]
            total[:] = 0
            for b in range(bounds[k], bounds[k + 1]):
                row, factor = right[b], left[b, o]
                for i in range(width):
                    total[i] += factor * row[i]
