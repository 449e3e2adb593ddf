"""Weighted sums over many small groups of records as compiled loops: in single precision, on a CPU, on all threads.

A library's product takes longer to call than a few records take to add up. Each group's sums are written once, in
their place. Never scales by a coefficient it was not given.
"""

import itertools
from typing import Any

import numpy as np
import torch
from numba import carray
from torch import Tensor

from fedfdp.native.compiled import CALL, DONE, FIRST, TAKEN, items, matrix, one_more, shared, vector

MOST = 16  # records of a group, on average; beyond, the library is faster
MATRIX = (torch.float32, 2)
F, I, L = np.float32, np.int32, np.int64  # noqa: E741


def fits(bounds: tuple[int, ...], *tensors: Tensor) -> bool:
    """Whether these are many small groups of numbers that the loops take."""
    groups = len(bounds) - 1
    if groups <= MOST or bounds[-1] > MOST * groups:
        return False
    if not all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors):
        return False
    # One record is added after the other: in a long sum rounding would add up.
    return max(high - low for low, high in itertools.pairwise(bounds)) <= 4 * MOST


def put_rows(into: Tensor, first: int, rows: Tensor, c: Tensor, bounds: tuple[int, ...], source: Tensor) -> None:
    """into[k, first + j] ← Σ_b c_b·rows_b,source_j over the rows b of group k."""
    loop = shared(_put_rows, MATRIX, int, MATRIX, (torch.float32, 1), (torch.int64, 1), (torch.int32, 1))
    loop(len(into), into, first, rows.contiguous(), c.contiguous(), torch.tensor(bounds), source)


def put_outer(into: Tensor, first: int, left: Tensor, right: Tensor, bounds: tuple[int, ...]) -> None:
    """into[k, first + o·width + i] ← Σ_b left_bo·right_bi over the rows b of group k."""
    loop = shared(_put_outer, MATRIX, int, MATRIX, MATRIX, (torch.int64, 1))
    loop(len(into), into, first, left.contiguous(), right.contiguous(), torch.tensor(bounds))


def _put_rows(address: Any) -> None:
    call = carray(address, CALL)
    into, first = matrix(call, FIRST, F), call[FIRST + 3]
    rows, c = matrix(call, FIRST + 4, F), vector(call, FIRST + 7, F)
    bounds, source = vector(call, FIRST + 9, L), vector(call, FIRST + 11, I)
    total = np.empty(rows.shape[1], dtype=F)
    while True:
        k = one_more(address, TAKEN)
        if k >= items(call):
            return
        total[:] = 0
        for b in range(bounds[k], bounds[k + 1]):
            row, factor = rows[b], c[b]
            for j in range(len(total)):
                total[j] += factor * row[j]
        place = into[k, first : first + len(total)]
        for j in range(len(total)):
            place[j] = total[source[j]]
        one_more(address, DONE)


def _put_outer(address: Any) -> None:
    call = carray(address, CALL)
    into, first = matrix(call, FIRST, F), call[FIRST + 3]
    left, right, bounds = matrix(call, FIRST + 4, F), matrix(call, FIRST + 7, F), vector(call, FIRST + 10, L)
    width = right.shape[1]
    while True:
        k = one_more(address, TAKEN)
        if k >= items(call):
            return
        for o in range(left.shape[1]):
            total = into[k, first + o * width : first + (o + 1) * width]
            total[:] = 0
            for b in range(bounds[k], bounds[k + 1]):
                row, factor = right[b], left[b, o]
                for i in range(width):
                    total[i] += factor * row[i]
        one_more(address, DONE)
