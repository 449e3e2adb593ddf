"""From a file or folder to clients: private ranges estimated first where the facts ask for them, then one reading.

What an estimate cost stays with the federation, so that no run can leave it out of its ledgers.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedfdp.data.federation import Federation
from fedfdp.data.files.own import OwnRecords, Say, read_records, read_unscaled
from fedfdp.data.files.paths import inside
from fedfdp.data.files.pieces import label_of
from fedfdp.data.private_ranges import Wanted, counts, ranges, released
from fedfdp.data.schema import PRIVATE, Estimate, Facts, Range
from fedfdp.privacy.noise.randomness import Randomness

Deal = Callable[[OwnRecords], Federation]


def place_of(source: str, folder: str | None) -> Path:
    """Where `data.source` leads; below `data.folder`, if that is given, and then never out of it."""
    return Path(source) if folder is None else inside(Path(folder), Path(folder) / source)


def open_records(
    facts: Facts, path: Path, deal: Deal, *, randomness: Randomness, progress: Say | None = None
) -> Federation:
    """The clients of these records, as `deal` makes them."""
    if not facts.estimates:
        return deal(read_records(facts, path, progress=progress))
    estimate = facts.estimate or Estimate()
    if not estimate.found:
        found = _estimated(facts, estimate, path, deal, randomness, progress)
        estimate = replace(estimate, found=found, found_with=estimate.sigma)
    federation = deal(read_records(replace(facts, estimate=estimate), path, progress=progress))
    return replace(federation, before=facts.before, found=estimate.found)


def _estimated(
    facts: Facts, estimate: Estimate, path: Path, deal: Deal, randomness: Randomness, progress: Say | None
) -> dict[str, Range]:
    records, columns = read_unscaled(facts, path, progress=progress)
    wanted = [Wanted(column.name, column.within) for column in columns]
    values = records.x.numpy()
    if facts.target == PRIVATE:
        wanted.append(Wanted(label_of(facts)))
        values = np.concatenate([values, records.y.numpy()[:, None]], axis=1)
    # Dealt as the scaled records will be: the same clients, and the same of their records for training.
    federation = deal(replace(records, x=torch.empty(len(values), 0)))
    total = np.zeros(sum(len(column.edges) - 1 for column in wanted))
    for client in federation.clients:
        exact = counts(values[client.train.index.numpy()], wanted)
        total += released(exact, len(wanted), estimate.sigma, randomness, client.name)
    found = ranges(total, wanted, sigma=estimate.sigma, holders=len(federation), tail=estimate.tail)
    return dict(found)
