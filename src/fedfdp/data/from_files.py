"""From your own files to a federation. Private ranges, if any are asked for, are estimated before the files are read.

What an estimate cost stays with the federation, so that no run can leave it out of its ledgers.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.data.columns import PRIVATE, Range
from fedfdp.data.dataset import Dataset
from fedfdp.data.federation import Federation
from fedfdp.data.files.paths import inside
from fedfdp.data.files.read import FileRecords, Say, read_records, read_unscaled
from fedfdp.data.files.source import label_of, target_range
from fedfdp.data.partition import How, by_owner, deal
from fedfdp.data.private_ranges import Wanted, counts, ranges, released
from fedfdp.data.schema import Estimate, Facts, class_names
from fedfdp.data.split import PARTITION, SPLIT, split, stream, subsample
from fedfdp.models.tasks import find_task
from fedfdp.privacy.noise.randomness import Randomness

Make = Callable[[FileRecords], Federation]


def place_of(source: str, folder: str | None) -> Path:
    """The path that `data.source` means: below `data.folder` if that is given, and then never outside it."""
    return Path(source) if folder is None else inside(Path(folder), Path(folder) / source)


def open_records(
    facts: Facts, path: Path, make: Make, *, randomness: Randomness, progress: Say | None = None
) -> Federation:
    """The federation that `make` makes of these records."""
    if not facts.estimates:
        return _named(make(read_records(facts, path, progress=progress)), facts)
    estimate = facts.estimate or Estimate()
    if not estimate.found:
        found = _estimated(facts, estimate, path, make, randomness, progress)
        estimate = replace(estimate, found=found, found_with=estimate.sigma)
    facts = replace(facts, estimate=estimate)
    federation = _named(make(read_records(facts, path, progress=progress)), facts)
    return replace(federation, before=facts.before, found=estimate.found)


def _named(federation: Federation, facts: Facts) -> Federation:
    """The federation with what its classes, or its target's values, are called in the file."""
    return replace(federation, class_names=class_names(facts), target=target_range(facts))


def _estimated(
    facts: Facts, estimate: Estimate, path: Path, make: Make, randomness: Randomness, progress: Say | None
) -> dict[str, Range]:
    records, columns = read_unscaled(facts, path, progress=progress)
    wanted = [Wanted(column.name, column.within) for column in columns]
    assert isinstance(records.x, Tensor)
    values = records.x.numpy()
    if facts.target == PRIVATE:
        wanted.append(Wanted(label_of(facts)))
        values = np.concatenate([values, records.y.numpy()[:, None]], axis=1)
    # The same clients, with the same training records, as the scaled records will give.
    federation = make(replace(records, x=torch.empty(len(values), 0)))
    total = np.zeros(sum(len(column.edges) - 1 for column in wanted))
    for client in federation.clients:
        exact = counts(values[client.train.index.numpy()], wanted)
        total += released(exact, len(wanted), estimate.sigma, randomness, client.name)
    found = ranges(total, wanted, sigma=estimate.sigma, holders=len(federation), tail=estimate.tail)
    return dict(found)


def federation_of_records(
    records: FileRecords,
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
    """A client for each holder that the files name; if they name none, as many clients as asked for.

    The records for the test are those that the files mark, or else a fraction of each client's, at random.
    """
    kept = subsample(len(records.x), fraction, seed, records.unit)
    if records.holders is not None and records.owner is not None:
        names = list(records.holders)
        indices = by_owner(records.owner[kept], len(names))
    else:
        # All records of a person go where the first one would go: no client alone could protect a person whose
        # records are at several.
        first, person = (kept, None) if records.unit is None else _first_records(records.unit, kept)
        classes = records.classes if not records.task or find_task(records.task).usual else None
        each = Dataset(records.name, records.x, records.y[torch.from_numpy(first)], classes)
        rng = stream(seed, PARTITION)
        names, indices = deal(each, None if how == "column" else clients, how, beta, shards_per_client, column, rng)
        if person is not None:
            indices = by_owner(_owners(indices)[person], len(names))
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
    x, y, unit = records.x, records.y, records.unit
    whose, task = records.unit_name, records.task
    return Federation.over(x, y, records.classes, records.name, names, parts, unit=unit, unit_name=whose, task=task)


def _first_records(unit: NDArray[np.int64], kept: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first record of each person; and for each kept record, the number of its person."""
    _, first, person = np.unique(unit[kept], return_index=True, return_inverse=True)
    return kept[first], person


def _owners(indices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """For each position, the number of its client."""
    owner = np.empty(sum(map(len, indices)), np.int64)
    for client, index in enumerate(indices):
        owner[index] = client
    return owner


def single_holder(records: FileRecords, facts: Facts, name: str) -> Federation:
    """A federation of one client: the holder with its own file. Test records are those that the file marks."""
    others = [holder for holder in records.holders or () if holder != name]
    if facts.holder is not None and others:
        raise DataError(f"{records.name}, column {facts.holder!r}: has rows of {others[0]!r}; this node is {name!r}")
    alone = replace(records, holders=(name,), owner=np.zeros(len(records.x), np.int64))
    return federation_of_records(alone, test_fraction=0.0)
