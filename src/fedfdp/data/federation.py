"""Clients with train and test records: one pool of tensors held once, and for each client the indices of its own.

Never copies a client's records until a batch is taken, and never lets through records that cannot be trained on.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data import partition as partitions
from fedfdp.data.conversion import as_inputs, as_targets, check_records, parts_of
from fedfdp.data.named.dataset import Dataset
from fedfdp.data.people import People
from fedfdp.privacy.accounting import Event

How = Literal["dirichlet", "iid", "shards", "column"]
Part = Literal["train", "test"]

# Each purpose has a stream of its own, so that a change in one leaves the others as they were.
SUBSAMPLE, PARTITION, SPLIT = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Shard:
    """Some of a pool's records, by index."""

    x: Tensor  # the whole pool's
    y: Tensor  # the whole pool's
    index: Tensor  # which of them
    unit: Tensor | None = None  # the person of each record of the pool, where one may have several

    def __len__(self) -> int:
        return self.index.shape[0]  # a tensor's own len takes three times as long, and a round asks every client

    @cached_property
    def people(self) -> People | None:
        """Whose the records are; None where each stands for itself."""
        return None if self.unit is None else People.of(self.unit[self.index])

    @cached_property
    def digest(self) -> str:
        """Of every record, in order, and of whose each is: the same wherever they are kept."""
        sha = hashlib.sha256(f"{self.x.dtype}{self.x.shape[1:]}{self.y.dtype}{self.y.shape[1:]}{len(self)}".encode())
        for positions in torch.split(torch.arange(len(self)), 4096):
            for part in self.take(positions):
                sha.update(part.contiguous().numpy().data)
        if self.people is not None:
            sha.update(self.people.order.contiguous().numpy().data)
            sha.update(self.people.counts.contiguous().numpy().data)
        return sha.hexdigest()

    def take(self, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The records at these positions within the shard, or all of them."""
        index = self.index if positions is None else self.index[positions]
        return self.x[index], self.y[index]


@dataclass(frozen=True, eq=False)
class ClientData:
    """One data holder. `test` is empty only where the holder has a single record, or gave no test records."""

    name: str  # how budgets, ledgers and reports name it
    train: Shard  # what is trained on, and protected
    test: Shard  # what the model is judged by

    @property
    def size(self) -> int:
        """n_i, what the holder declares: its training records, or the persons they are of."""
        return len(self.train) if self.train.people is None else len(self.train.people)


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients over one pool. `classes` is None for regression.

    `before` is what every client released to have its records scaled: its ledger is charged with it before round 0.
    """

    clients: tuple[ClientData, ...]  # in the order of summation
    classes: int | None  # None for regression
    name: str  # of the data, for people
    x: Tensor  # inputs of all records: the pool
    y: Tensor  # targets of all records
    before: tuple[Event, ...] = ()  # events paid before round 0
    found: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # the ranges that came of it
    unit: str = "record"  # whom the guarantee is for: a record, or all records with one value in the column named here

    def __post_init__(self) -> None:
        check_records(
            self.x, self.y, self.classes, [(c.name, len(c.train), c.train.index, c.test.index) for c in self.clients]
        )

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names, in the order of summation."""
        return tuple(client.name for client in self.clients)

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_i of each client: its training records, or the persons they are of."""
        return tuple(client.size for client in self.clients)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.x.shape[1:])

    @property
    def tokens(self) -> bool:
        """Whether records are token numbers."""
        return not self.x.is_floating_point()

    @property
    def outputs(self) -> int:
        """How many values a model gives for a record: one per class, or one per target of a regression."""
        return self.classes or math.prod(self.y.shape[1:]) or 1

    @cached_property
    def shares(self) -> Tensor:
        """p_i = n_i / Σ n_j over the training records, float64."""
        sizes = torch.tensor([len(client.train) for client in self.clients], dtype=torch.float64)
        return sizes / sizes.sum()

    def class_counts(self, part: Part = "train") -> NDArray[np.int64]:
        """How many records of each class each client holds, (clients, classes)."""
        if self.classes is None:
            raise DataError(f"{self.name} is for regression: it has no classes to count")
        shards = [getattr(client, part) for client in self.clients]
        return np.stack([torch.bincount(s.y[s.index], minlength=self.classes).numpy() for s in shards])

    def holdings(self) -> dict[str, list[Any] | None]:
        """Who holds how many records, and of which classes: what clients.json of a run holds."""
        return {
            "names": list(self.names),
            "train": [len(client.train) for client in self.clients],
            "test": [len(client.test) for client in self.clients],
            "classes": None if self.classes is None else self.class_counts().tolist(),
        }

    def fingerprint(self) -> str:
        """SHA-256 of every record and of who holds which: equal only for the same data dealt out the same way."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for pool in (self.x, self.y):
            digest.update(f"{pool.dtype}{tuple(pool.shape)}".encode())
            digest.update(pool.contiguous().numpy().data)
        digest.update(f"classes {self.classes}".encode())
        if (unit := self.clients[0].train.unit) is not None:
            digest.update(unit.contiguous().numpy().data)
        for client in self.clients:
            name = client.name.encode()
            digest.update(f"{len(name)} {len(client.train)} {len(client.test)} ".encode() + name)
            digest.update(client.train.index.numpy().data)
            digest.update(client.test.index.numpy().data)
        return digest.hexdigest()

    @classmethod
    def partition(
        cls,
        dataset: Dataset,
        *,
        clients: int | None = None,
        how: How = "dirichlet",
        beta: float = 0.1,
        shards_per_client: int = 2,
        column: str | None = None,
        test_fraction: float = 0.25,
        fraction: float = 1.0,
        seed: int = 0,
    ) -> "Federation":
        """Deal a dataset out to clients, then split each client's records into train and test at random.

        Args:
            dataset: from `fedfdp.data.load`.
            clients: how many; needed except with `how="column"`.
            how: "dirichlet", "iid", "shards", or "column", where the column's values are the clients.
            beta: of the Dirichlet partition: the smaller, the more unequal.
            shards_per_client: of the shards partition.
            column: of the column partition.
            test_fraction: of each client's records, rounded up.
            fraction: below 1 only that part of the records, drawn at random, is dealt out.
            seed: the same seed gives the same federation.

        Returns:
            The clients, named client-0, client-1, … or after the column's values.
        """
        if not 0 < fraction <= 1:
            raise SettingError("fraction", fraction, "must be above 0 and at most 1")
        if fraction < 1:
            wanted = max(1, round(fraction * len(dataset)))
            dataset = dataset.subset(np.sort(stream(seed, SUBSAMPLE).choice(len(dataset), wanted, replace=False)))
        names, indices = dealt(dataset, clients, how, beta, shards_per_client, column, stream(seed, PARTITION))
        rng = stream(seed, SPLIT)
        parts = [split(index, test_fraction, rng) for index in indices]
        return cls.over(dataset.x, dataset.y, dataset.classes, dataset.name, names, parts)

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, Any],
        *,
        test_fraction: float = 0.25,
        classes: int | None = None,
        units: Mapping[str, Sequence[Any]] | None = None,
        seed: int = 0,
        name: str = "clients",
        unit_name: str = "person",
    ) -> "Federation":
        """Your own clients: `{"name": (x, y)}`, split at random, or `{"name": (x_train, y_train, x_test, y_test)}`.

        Args:
            clients: arrays or tensors by the client's name, records along the first axis. A torch `Dataset` of (x, y)
                may stand for a pair; its items are read once.
            test_fraction: of the records of a client that gives (x, y), rounded up.
            classes: needed where y are integers (classes 0, 1, …) and not every class occurs. Floating y without it
                mean regression.
            units: by the client's name, of whom each record is, in the same order: a person's records then stay
                together in the split, are drawn together, and are protected together.
            seed: of the split.
            name: of the data, for people.
            unit_name: what a unit is, for people.

        Returns:
            The clients in the order given.
        """
        if not isinstance(clients, Mapping) or not clients:
            raise DataError("no clients by name: give at least one as {'name': (x, y)}")
        rng = stream(seed, SPLIT)
        of_whom = None if units is None else {client: _named(client, units) for client in clients}
        people = None if of_whom is None else numbered(of_whom.values())
        xs: list[Tensor] = []
        ys: list[Tensor] = []
        parts: list[tuple[Tensor, Tensor]] = []
        start = 0
        for client, given in clients.items():
            pairs, sizes = parts_of(client, given), []
            for x, y in pairs:
                xs.append(as_inputs(client, x, like=xs[0] if xs else None))
                ys.append(as_targets(client, y, records=len(xs[-1]), classes=classes, like=ys[0] if ys else None))
                sizes.append(len(xs[-1]))
            index = np.arange(start, start + sum(sizes))
            start += sum(sizes)
            if of_whom is not None and len(of_whom[client]) != sum(sizes):
                raise DataError(f"client {client!r}: {sum(sizes)} records, {len(of_whom[client])} in units")
            if len(pairs) == 1:
                parts.append(split(index, test_fraction, rng, people))
            else:
                parts.append((torch.from_numpy(index[: sizes[0]]), torch.from_numpy(index[sizes[0] :])))
        pool_y = torch.cat(ys)
        if classes is None and not pool_y.is_floating_point():
            classes = int(pool_y.max()) + 1 if len(pool_y) else 1
        return cls.over(torch.cat(xs), pool_y, classes, name, list(clients), parts, unit=people, unit_name=unit_name)

    @classmethod
    def over(
        cls,
        x: Tensor,
        y: Tensor,
        classes: int | None,
        name: str,
        names: Sequence[str],
        parts: Sequence[tuple[Tensor, Tensor]],
        *,
        unit: NDArray[np.int64] | None = None,
        unit_name: str = "person",
    ) -> "Federation":
        """Clients over a pool that is already there, each with the positions of its train and test records."""
        of_whom = None if unit is None else torch.from_numpy(unit)
        members = tuple(
            ClientData(client, Shard(x, y, train, of_whom), Shard(x, y, test, of_whom))
            for client, (train, test) in zip(names, parts, strict=True)
        )
        named = "record" if unit is None else unit_name
        return cls(clients=members, classes=classes, name=name, x=x, y=y, unit=named)


def stream(seed: int, purpose: int) -> np.random.Generator:
    """The random numbers of one purpose."""
    if seed < 0:
        raise SettingError("seed", seed, "must be 0 or more")
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))


def dealt(
    dataset: Dataset,
    clients: int | None,
    how: How,
    beta: float,
    shards_per_client: int,
    column: str | None,
    rng: np.random.Generator,
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Names of clients, and the positions of each one's records."""
    if how not in get_args(How):
        raise SettingError("partition", how, "no such partition", nearest(how, get_args(How)))
    if how == "column":
        if column is None:
            raise SettingError("column", None, "the column partition needs a column's name", "for example column=label")
        names, indices = partitions.by_column(dataset.column(column))
        if clients not in (None, len(names)):
            raise SettingError("clients", clients, f"column {column!r} has {len(names)} values", "leave clients out")
        return names, indices
    if clients is None:
        raise SettingError("clients", None, f"the {how} partition needs a number of clients")
    if how == "iid":
        indices = partitions.iid(len(dataset), clients, rng)
    elif how == "shards":
        indices = partitions.shards(dataset.y.numpy(), clients, shards_per_client, rng)
    elif dataset.classes is None:
        raise SettingError("partition", how, f"{dataset.name} has no classes", "use iid, shards or column")
    else:
        indices = partitions.dirichlet(dataset.y.numpy(), clients, beta, rng)
    return [f"client-{i}" for i in range(clients)], indices


def split(
    index: NDArray[np.int64], test_fraction: float, rng: np.random.Generator, unit: NDArray[np.int64] | None = None
) -> tuple[Tensor, Tensor]:
    """Train and test at random: the test part rounded up, but one record at least stays for training.

    With `unit`, the person of each record of the pool, persons are split instead: nobody is in both parts.
    """
    if not 0 <= test_fraction < 1:
        raise SettingError("test_fraction", test_fraction, "must be at least 0 and below 1")
    whole = index if unit is None else np.unique(unit[index])
    # A hair less before rounding up: 0.1 × 30 is 3.0000000000000004 in floating point.
    held_out = min(max(len(whole) - 1, 0), int(np.ceil(test_fraction * len(whole) - 1e-9)))
    shuffled = rng.permutation(whole)
    if unit is not None:
        test = np.isin(unit[index], shuffled[:held_out])
        return torch.from_numpy(np.sort(index[~test])), torch.from_numpy(np.sort(index[test]))
    return torch.from_numpy(np.sort(shuffled[held_out:])), torch.from_numpy(np.sort(shuffled[:held_out]))


def numbered(of_whom: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """A number for every different person, the same wherever the person occurs."""
    return np.unique(np.concatenate([np.asarray(part) for part in of_whom]), return_inverse=True)[1].reshape(-1)


def _named(client: str, units: Mapping[str, Sequence[Any]]) -> NDArray[Any]:
    if client not in units:
        raise DataError(f"client {client!r}: no units are given for it; say of whom each of its records is")
    return np.asarray(units[client])
