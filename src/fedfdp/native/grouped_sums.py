"""Weighted sums over many small groups of records in compiled loops: in single precision, on a CPU, on all threads.

For a few records the call of a matrix product takes longer than the sum itself. Each group's sums are written once, to
their final place. Never scales by a coefficient it was not given.
"""

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.native.compiled import shared

MOST = 16  # records in a group on average; for larger groups torch is faster
MATRIX, NUMBERS = (torch.float32, 2), (torch.float32, 1)
PLACES, SHORT_PLACES = (torch.int64, 1), (torch.int32, 1)
Floats = NDArray[np.float32]
Places = NDArray[np.int64]
ShortPlaces = NDArray[np.int32]


def fits(bounds: tuple[int, ...], *tensors: Tensor) -> bool:
    """Whether these are many small groups, of tensors that the loops can read."""
    groups = len(bounds) - 1
    if groups <= MOST or bounds[-1] > MOST * groups:
        return False
    if not all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors):
        return False
    # One record is added after the other: in a long sum rounding errors would add up.
    return max(high - low for low, high in itertools.pairwise(bounds)) <= 4 * MOST


def put_rows(into: Tensor, first: int, rows: Tensor, c: Tensor, bounds: tuple[int, ...], source: Tensor) -> None:
    """into[k, first + j] ← Σ_b c_b·rows_b,source_j over the rows b of group k."""
    _put_rows(len(into), into, first, rows.contiguous(), c.contiguous(), torch.tensor(bounds), source)


def put_outer(into: Tensor, first: int, left: Tensor, right: Tensor, bounds: tuple[int, ...]) -> None:
    """into[k, first + o·width + i] ← Σ_b left_bo·right_bi over the rows b of group k."""
    _put_outer(len(into), into, first, left.contiguous(), right.contiguous(), torch.tensor(bounds))


def _row(into: Floats, first: int, rows: Floats, c: Floats, bounds: Places, source: ShortPlaces) -> Floats:
    return np.empty(rows.shape[1], dtype=np.float32)


@shared(_row, into=MATRIX, first=int, rows=MATRIX, c=NUMBERS, bounds=PLACES, source=SHORT_PLACES)
def _put_rows(
    k: int, total: Floats, into: Floats, first: int, rows: Floats, c: Floats, bounds: Places, source: ShortPlaces
) -> None:
    total[:] = 0
    for b in range(bounds[k], bounds[k + 1]):
        row, factor = rows[b], c[b]
        for j in range(len(total)):
            total[j] += factor * row[j]
    place = into[k, first : first + len(total)]
    for j in range(len(total)):
        place[j] = total[source[j]]


@shared(into=MATRIX, first=int, left=MATRIX, right=MATRIX, bounds=PLACES)
def _put_outer(k: int, into: Floats, first: int, left: Floats, right: Floats, bounds: Places) -> None:
    width = right.shape[1]
    for o in range(left.shape[1]):
        total = into[k, first + o * width : first + (o + 1) * width]
        total[:] = 0
        for b in range(bounds[k], bounds[k + 1]):
            row, factor = right[b], left[b, o]
            for i in range(width):
                total[i] += factor * row[i]
