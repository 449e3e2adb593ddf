"""All updates of a round at once, for methods that compare them: a copy of each, and the products of every two."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfdp.algorithms.record_types import Upload
from fedfdp.core import weights as w
from fedfdp.core.records import Weights

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Together:
    """Updates u_i with p_i among those that are here."""

    updates: Sequence[Weights]
    records: Numbers  # n_i
    shares: Numbers  # p_i, with what is taken off for coming late
    gram: Numbers  # u_i·u_j

    @classmethod
    def of(cls, uploads: Iterable[Upload]) -> "Together":
        updates, records, counts = [], [], []
        for upload in uploads:
            updates.append(w.clone(upload.update))  # it may be a view into a buffer of many clients
            records.append(float(upload.records))
            counts.append(upload.weight)
        gram = np.array([[w.product(a, b) for b in updates] for a in updates])
        return cls(updates, np.array(records), np.array(counts) / (sum(counts) or 1.0), gram)

    def __bool__(self) -> bool:
        return bool(self.updates)

    def true_squares(self, noise: Numbers, size: int) -> Numbers:
        """‖u_i‖² without what noise adds on average; at least what noise varies by, so that none counts for nothing."""
        squares = np.diag(self.gram)
        least = np.maximum(noise * np.sqrt(2 / size), 1e-12 * squares.max() + 1e-300)
        true: Numbers = np.maximum(squares - noise, least)
        return true

    def length(self, omega: Numbers) -> float:
        """‖Σ ω_i u_i‖"""
        return math.sqrt(max(float(omega @ self.gram @ omega), 0.0))

    def added_to(self, weights: Weights, omega: Numbers, *, length: float | None = None) -> Weights:
        """w + Σ ω_i u_i, the sum being brought to a length if one is given."""
        own = self.length(omega)
        scale = 1.0 if length is None or not own else length / own
        return w.add(weights, self.mixture(weights, omega, scale=scale))

    def mixture(self, like: Weights, omega: Numbers, *, scale: float = 1.0) -> Weights:
        """Σ ω_i u_i"""
        total = w.zeros_like(like)
        for update, factor in zip(self.updates, omega.tolist(), strict=True):
            w.add_(total, update, scale=scale * factor)
        return total
