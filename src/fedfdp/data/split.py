"""Which records are used at all, and which of a client's are for the test. The same seed gives the same answer."""

import numpy as np
import torch
from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.data.partition import Indices

# Each purpose has random numbers of its own, so that a change in one leaves the others as they were.
SUBSAMPLE, PARTITION, SPLIT = 1, 2, 3


def stream(seed: int, purpose: int) -> np.random.Generator:
    """The random numbers for one purpose."""
    if seed < 0:
        raise SettingError("seed", seed, "must be 0 or more")
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))


def subsample(records: int, fraction: float, seed: int, unit: Indices | None = None) -> Indices:
    """Positions of this fraction of the records, at random; with `unit`, of all records of that fraction of persons."""
    if not 0 < fraction <= 1:
        raise SettingError("fraction", fraction, "must be above 0 and at most 1")
    every = np.arange(records)
    if fraction == 1:
        return every
    whole = every if unit is None else np.unique(unit)
    chosen = np.sort(stream(seed, SUBSAMPLE).choice(whole, max(1, round(fraction * len(whole))), replace=False))
    return chosen if unit is None else np.flatnonzero(np.isin(unit, chosen))


def split(
    index: Indices, test_fraction: float, rng: np.random.Generator, unit: Indices | None = None
) -> tuple[Tensor, Tensor]:
    """A client's records for training and for the test, at random. At least one record stays for training.

    With `unit`, the person of each record of the pool, persons are split instead: nobody is in both parts.
    """
    if not 0 <= test_fraction < 1:
        raise SettingError("test_fraction", test_fraction, "must be at least 0 and below 1")
    whole = index if unit is None else np.unique(unit[index])
    # Slightly less before rounding up: 0.1 × 30 is 3.0000000000000004 in floating point.
    held_out = min(max(len(whole) - 1, 0), int(np.ceil(test_fraction * len(whole) - 1e-9)))
    shuffled = rng.permutation(whole)
    if unit is not None:
        test = np.isin(unit[index], shuffled[:held_out])
        return torch.from_numpy(np.sort(index[~test])), torch.from_numpy(np.sort(index[test]))
    return torch.from_numpy(np.sort(shuffled[held_out:])), torch.from_numpy(np.sort(shuffled[:held_out]))
