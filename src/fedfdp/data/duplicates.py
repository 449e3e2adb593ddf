"""Records that are equal: how many, at one holder and at several, and whether chance explains them.

In a coarse table, of a few categories, equal rows are what one expects. So holders are said to share records only
where more of them are equal than rows within the holders are. By Cauchy and Schwarz two rows of different holders are
equal, by chance alone, at most as often as the geometric mean of the rates within both.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedfdp.core.trees import parts_of
from fedfdp.data.federation import Federation

ROWS = 1 << 16  # hashed at once
PAIRS = 20  # of holders that are looked at closely
DEVIATIONS = 4  # above what chance explains


@dataclass(frozen=True)
class Duplicates:
    """Equal records, in input and label."""

    repeated: int  # records that equal an earlier one of the same holder
    different: int  # different records in all
    shared: tuple[tuple[str, str, int], ...]  # pairs of holders, and how many different records both have
    suspicious: tuple[tuple[str, str, int], ...]  # those of `shared` that chance does not explain, among the first


def duplicates(federation: Federation) -> Duplicates:
    """Equal records within and across holders; a record that three holders have counts for two pairs of them."""
    owner = np.full(len(federation.x), -1, np.int64)
    for position, client in enumerate(federation.clients):
        owner[client.train.index.numpy()] = position
        owner[client.test.index.numpy()] = position
    kept = np.flatnonzero(owner >= 0)
    keys, owner = _hashes(federation)[kept], owner[kept]
    order = np.lexsort((owner, keys))
    keys, owner = keys[order], owner[order]
    equal, same = keys[1:] == keys[:-1], owner[1:] == owner[:-1]
    across = np.flatnonzero(equal & ~same)
    pairs, counts = np.unique(np.stack([owner[across], owner[across + 1]]), axis=1, return_counts=True)
    first = np.argsort(-counts, kind="stable")
    found = [(int(a), int(b), int(n)) for (a, b), n in zip(pairs.T[first], counts[first], strict=True)]
    names = [client.name for client in federation.clients]
    chance = _Chance(keys, owner, len(names))
    return Duplicates(
        int((equal & same).sum()),
        len(keys) - int(equal.sum()),
        tuple((names[a], names[b], n) for a, b, n in found),
        tuple((names[a], names[b], n) for a, b, n in found[:PAIRS] if not chance.explains(a, b)),
    )


class _Chance:
    """How many pairs of equal rows two holders may have by chance, judged by the pairs within holders."""

    def __init__(self, keys: NDArray[np.uint64], owner: NDArray[np.int64], holders: int) -> None:
        self.keys, self.owner = keys, owner
        self.sizes = np.bincount(owner, minlength=holders).astype(float)
        runs = np.flatnonzero(np.concatenate([[True], (keys[1:] != keys[:-1]) | (owner[1:] != owner[:-1]), [True]]))
        copies = np.diff(runs).astype(float)
        within = np.bincount(owner[runs[:-1]], copies * (copies - 1) / 2, minlength=holders)
        possible = self.sizes * (self.sizes - 1) / 2
        self.rates = within / np.maximum(possible, 1)
        self.rate = within.sum() / max(possible.sum(), 1)  # of all holders together: a small one has few pairs

    def explains(self, a: int, b: int) -> bool:
        """Whether so many pairs of equal rows of two holders are no more than chance would give."""
        rate = max(math.sqrt(self.rates[a] * self.rates[b]), self.rate)
        expected = self.sizes[a] * self.sizes[b] * rate
        return bool(self._equal(a, b) <= expected + DEVIATIONS * math.sqrt(expected))

    def _equal(self, a: int, b: int) -> int:
        ones, of_a = np.unique(self.keys[self.owner == a], return_counts=True)
        others, of_b = np.unique(self.keys[self.owner == b], return_counts=True)
        _, at_a, at_b = np.intersect1d(ones, others, assume_unique=True, return_indices=True)
        return int((of_a[at_a] * of_b[at_b]).sum())


def _hashes(federation: Federation) -> NDArray[np.uint64]:
    """64 bits per record: equal for equal records; two different ones are equal by a chance of about 1 in 10¹⁹."""
    x = federation.x
    flat = [part.reshape(len(part), -1) for part in (*parts_of(x), federation.y)]
    whole = [part.float() if part.dtype == torch.bool else part for part in flat if part.shape[1]]
    words = [part.contiguous().view(torch.uint8).numpy().view(np.uint32) for part in whole]
    rng = np.random.default_rng(0)
    factors = [rng.integers(1, 2**63, part.shape[1], dtype=np.uint64) * 2 + 1 for part in words]
    found = np.empty(len(x), np.uint64)
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        sums = [(part[rows] * factor).sum(axis=1, dtype=np.uint64) for part, factor in zip(words, factors, strict=True)]
        found[rows] = np.sum(sums, axis=0, dtype=np.uint64)
    return found
