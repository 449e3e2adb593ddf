"""Which rows of a chunk of records belong to which group, and weighted sums of rows kept apart by group.

Never scales by a coefficient it was not given, and never reads a row outside its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Span:
    """Rows [start, stop) of a chunk belong to this group."""

    group: int
    start: int
    stop: int


def spans(sizes: Sequence[int], start: int, stop: int) -> list[Span]:
    """The groups' rows among records [start, stop), counted from `start`; groups with none there are left out."""
    found, first = [], 0
    for group, size in enumerate(sizes):
        low, high = max(first, start), min(first + size, stop)
        if low < high:
            found.append(Span(group, low - start, high - start))
        first += size
    return found


def add_rows(sums: Tensor, rows: Tensor, c: Tensor, where: Sequence[Span]) -> None:
    """sums[k] += Σ_b c_b·rows_b over the records b of group k; sums is (K, …), rows (B, …)."""
    flat, rows = sums.flatten(1), rows.flatten(1)
    for span in where:
        part = slice(span.start, span.stop)
        flat[span.group].addmv_(rows[part].T, c[part])


def add_outer(sums: Tensor, left: Tensor, right: Tensor, where: Sequence[Span]) -> None:
    """sums[k] += Σ left_b ⊗ right_b over the records b of group k; left is (B, o) or (B, L, o), right alike."""
    for span in where:
        part = slice(span.start, span.stop)
        sums[span.group].addmm_(left[part].flatten(0, -2).T, right[part].flatten(0, -2))
