"""Partitions: which client gets which records of a dataset. Each gives one array of positions per client.

Pure functions. Every record goes to exactly one client; nothing is copied or dropped, and no global randomness is used.
"""

import heapq
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedfdp.core.errors import SettingError, nearest
from fedfdp.data.dataset import Dataset

How = Literal["dirichlet", "iid", "shards", "column"]
Indices = NDArray[np.int64]

_DRAWS = 2_000_000  # shares that are drawn at most before a Dirichlet partition is repaired instead of redrawn
_MOST_REDRAWS = 2_000


def deal(
    dataset: Dataset,
    clients: int | None,
    how: How,
    beta: float,
    shards_per_client: int,
    column: str | None,
    rng: np.random.Generator,
) -> tuple[list[str], list[Indices]]:
    """The clients' names, and the positions of each one's records."""
    if how not in get_args(How):
        raise SettingError("partition", how, "no such partition", nearest(how, get_args(How)))
    if how == "column":
        if column is None:
            raise SettingError("column", None, "the column partition needs a column's name", "for example column=label")
        names, indices = by_column(dataset.column(column))
        if clients not in (None, len(names)):
            raise SettingError("clients", clients, f"column {column!r} has {len(names)} values", "leave clients out")
        return names, indices
    if clients is None:
        raise SettingError("clients", None, f"the {how} partition needs a number of clients")
    if how == "iid":
        indices = iid(len(dataset), clients, rng)
    elif how == "shards":
        indices = shards(dataset.y.numpy(), clients, shards_per_client, rng)
    elif dataset.classes is None:
        raise SettingError("partition", how, f"{dataset.name} has no classes", "use iid, shards or column")
    else:
        indices = dirichlet(dataset.y.numpy(), clients, beta, rng)
    return [f"client-{i}" for i in range(clients)], indices


def iid(records: int, clients: int, rng: np.random.Generator) -> list[Indices]:
    """Equal parts at random; sizes differ by at most one."""
    _check_clients(clients, records)
    return np.array_split(rng.permutation(records), clients)


def dirichlet(
    labels: NDArray[np.generic], clients: int, beta: float, rng: np.random.Generator, min_records: int = 10
) -> list[Indices]:
    """Deals out each class by shares drawn from Dirichlet(β), as in the paper's experiments.

    A client that already holds an equal share |D|/N gets nothing of the classes that follow. Everything is redrawn
    until each client holds `min_records`, or half an equal share if that is less. If that does not happen within the
    draws allowed, the largest clients give to those below, so this always ends.
    """
    _check_clients(clients, len(labels))
    if not (beta > 0 and np.isfinite(beta)):
        raise SettingError("beta", beta, "must be a positive number", "0.1 is the paper's")
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    least = min(min_records, max(1, len(labels) // (2 * clients)))
    for _ in range(min(_MOST_REDRAWS, max(20, _DRAWS // (clients * len(sizes))))):
        counts = _draw(sizes, clients, beta, rng)
        if counts.sum(axis=1).min() >= least:
            break
    else:
        _repair(counts, least)
    owner = np.empty(len(labels), np.int64)
    for k in range(len(sizes)):
        owner[rng.permutation(np.flatnonzero(codes == k))] = np.repeat(np.arange(clients), counts[:, k])
    return by_owner(owner, clients)


def shards(
    labels: NDArray[np.generic], clients: int, shards_per_client: int, rng: np.random.Generator
) -> list[Indices]:
    """Sorts the records by label, cuts them into equal shards and deals these out at random: few classes per client."""
    _check_clients(clients, len(labels))
    pieces = clients * shards_per_client
    if not 1 <= shards_per_client <= len(labels) // clients:
        raise SettingError(
            "shards_per_client", shards_per_client, f"must be 1 to {len(labels) // clients} here", "use fewer"
        )
    shuffled = rng.permutation(len(labels))  # ties between equal labels are broken at random
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    piece = np.arange(len(labels)) * pieces // len(labels)
    owner = np.empty(len(labels), np.int64)
    owner[ordered] = rng.permutation(pieces)[piece] % clients
    return by_owner(owner, clients)


def by_column(values: NDArray[np.generic]) -> tuple[list[str], list[Indices]]:
    """One client for each distinct value, named after it, in sorted order."""
    names, owner = np.unique(values, return_inverse=True)
    return [str(name) for name in names], by_owner(owner, len(names))


def _check_clients(clients: int, records: int) -> None:
    if clients < 1:
        raise SettingError("clients", clients, "must be at least 1")
    if clients > records:
        raise SettingError("clients", clients, f"there are {records} records, and each client needs one", "use fewer")


def _draw(sizes: Indices, clients: int, beta: float, rng: np.random.Generator) -> Indices:
    """How many records of each class each client gets: (clients, classes)."""
    counts = np.zeros((clients, len(sizes)), np.int64)
    held = np.zeros(clients, np.int64)
    full = sizes.sum() / clients
    for k, size in enumerate(sizes):
        share = rng.dirichlet(np.full(clients, beta))
        share[held >= full] = 0
        if not share.sum() > 0:  # a tiny β gave everything to clients that are full
            share = (held < full).astype(float)
        upto = np.cumsum(share)
        counts[:, k] = np.diff((upto / upto[-1] * size).astype(np.int64), prepend=0)
        held += counts[:, k]
    return counts


def _repair(counts: Indices, least: int) -> None:
    """Gives records to clients below `least`, one by one, each from the commonest class of the largest client."""
    held = counts.sum(axis=1)
    givers = [(-size, client) for client, size in enumerate(held.tolist()) if size > least]
    heapq.heapify(givers)
    for taker in np.flatnonzero(held < least):
        for _ in range(least - held[taker]):
            size, giver = givers[0]
            k = counts[giver].argmax()
            counts[giver, k] -= 1
            counts[taker, k] += 1
            heapq.heapreplace(givers, (size + 1, giver))


def by_owner(owner: NDArray[np.int64], clients: int) -> list[Indices]:
    """Each client's records in rising order, where `owner` is the client of each record. Takes one sort."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=clients))[:-1])
