"""From your own records to clients: those that the files name, or parts that are dealt out as of any dataset."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import partition as partitions
from fedfdp.data.federation import PARTITION, SPLIT, SUBSAMPLE, Federation, How, dealt, split, stream
from fedfdp.data.files.own import OwnRecords
from fedfdp.data.named.dataset import Dataset
from fedfdp.data.schema import Facts


def federation_of_records(
    records: OwnRecords,
    *,
    clients: int = 10,
    how: How = "dirichlet",
    beta: float = 0.1,
    shards_per_client: int = 2,
    column: str | None = None,
    test_fraction: float = 0.25,
    fraction: float = 1.0,
    seed: int = 0,
) -> Federation:
    """The clients that the records name; where they name none, as many as asked for.

    The test part is what the files mark as such, else a fraction of each client's records, at random.
    """
    if not 0 < fraction <= 1:
        raise SettingError("fraction", fraction, "must be above 0 and at most 1")
    kept = _kept(records, fraction, seed)
    if records.holders is not None and records.owner is not None:
        names = list(records.holders)
        indices = partitions.by_owner(records.owner[kept], len(names))
    else:
        # A person is dealt out whole, to where their first record would go: at several clients they would be protected
        # by none of them alone.
        first, person = (kept, None) if records.unit is None else _persons(records.unit, kept)
        each = Dataset(records.name, records.x, records.y[torch.from_numpy(first)], records.classes)
        rng = stream(seed, PARTITION)
        names, indices = dealt(each, None if how == "column" else clients, how, beta, shards_per_client, column, rng)
        if person is not None:
            indices = partitions.by_owner(_owners(indices)[person], len(names))
    rng = stream(seed, SPLIT)
    parts = []
    for name, index in zip(names, indices, strict=True):
        own = kept[index]
        if records.test is None:
            parts.append(split(own, test_fraction, rng, records.unit))
            continue
        marked = records.test[own]
        if marked.all():
            raise DataError(
                f"{records.name}, holder {name!r}: all its records are for the test; leave some to train on"
            )
        parts.append((torch.from_numpy(own[~marked]), torch.from_numpy(own[marked])))
    return Federation.over(
        records.x,
        records.y,
        records.classes,
        records.name,
        names,
        parts,
        unit=records.unit,
        unit_name=records.unit_name,
    )


def _kept(records: OwnRecords, fraction: float, seed: int) -> NDArray[np.int64]:
    """That part of the records, at random; where they are of persons, the records of that part of the persons."""
    every = np.arange(len(records.x))
    if fraction == 1:
        return every
    whole = every if records.unit is None else np.unique(records.unit)
    chosen = np.sort(stream(seed, SUBSAMPLE).choice(whole, max(1, round(fraction * len(whole))), replace=False))
    return chosen if records.unit is None else np.flatnonzero(np.isin(records.unit, chosen))


def _persons(unit: NDArray[np.int64], kept: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first record of each person, and for each record that is kept which of them its person is."""
    _, first, person = np.unique(unit[kept], return_index=True, return_inverse=True)
    return kept[first], person


def _owners(indices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For each position the client that has it."""
    owner = np.empty(sum(map(len, indices)), np.int64)
    for client, index in enumerate(indices):
        owner[index] = client
    return owner


def single_holder(records: OwnRecords, facts: Facts, name: str, *, test_fraction: float) -> Federation:
    """A holder's own file as a federation of one."""
    others = [holder for holder in records.holders or () if holder != name]
    if facts.holder is not None and others:
        raise DataError(f"{records.name}, column {facts.holder!r}: has rows of {others[0]!r}; this node is {name!r}")
    alone = replace(records, holders=(name,), owner=np.zeros(len(records.x), np.int64))
    return federation_of_records(alone, test_fraction=test_fraction)
