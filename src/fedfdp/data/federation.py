"""A federation: clients with train and test records. The pool of all records is held once, a client holds indices.

It copies no records until a batch is taken, and refuses records that cannot be trained on.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.core.trees import Form, Inputs, form_of, is_plain, joined, parts_of
from fedfdp.data.clients import ClientData, Clients, Held, gathered
from fedfdp.data.dataset import Dataset
from fedfdp.data.from_arrays import as_inputs, as_targets, check_records, numbered, pairs_of, persons_of
from fedfdp.data.partition import How, deal
from fedfdp.data.split import PARTITION, SPLIT, split, stream, subsample
from fedfdp.fairness.metrics.groups import Groups
from fedfdp.models.tasks import Task, find_task, task_for
from fedfdp.privacy.accounting import Event

Part = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients over one pool."""

    clients: Sequence[ClientData]  # in the order of summation
    classes: int | None  # None for regression
    name: str  # of the data, for display
    x: Inputs  # inputs of all records: the pool; a tensor, or a tree of several inputs
    y: Tensor  # targets of all records
    before: tuple[Event, ...] = ()  # what every client released to find private ranges; paid before round 0
    found: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # the private ranges that were found
    unit: str = "record"  # what is protected: a record, or all records with the same value in the column named here
    class_names: tuple[str, ...] = ()  # in the order of the class numbers; none: the numbers themselves are shown
    target: tuple[float, float] | None = None  # of a regression: the range that the targets were scaled from to [−1, 1]
    declared: str | Task = ""  # what the targets are; "": one class each, or numbers
    groups: Groups | None = None  # of each record: how the model's answers for them compare is measured at the test

    def __post_init__(self) -> None:
        train, test = self.held("train"), self.held("test")
        held = zip(self.names, train, test, strict=True)
        check_records(self.x, self.y, self.classes, self.names, train.counts, held, self.task)

    def __len__(self) -> int:
        return len(self.clients)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The clients' names, in the order of summation."""
        return self.clients.names if isinstance(self.clients, Clients) else tuple(c.name for c in self.clients)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """n_i of each client: its training records, or the persons they are of."""
        if self.clients[0].train.unit is None:
            return tuple(self.held("train").counts.tolist())
        return tuple(client.size for client in self.clients)

    def held(self, part: Part) -> Held:
        """Which records of the pool each client trains on, or is tested on."""
        return self._held[0 if part == "train" else 1]

    def targets(self, part: Part) -> Tensor:
        """The targets of these records, one client after the other."""
        return self.y[self.held(part).rows]

    @cached_property
    def _held(self) -> tuple[Held, Held]:
        if isinstance(self.clients, Clients):
            return self.clients.train, self.clients.test
        return gathered((client.train.index, client.test.index) for client in self.clients)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record; of its first input where there are several."""
        return tuple(parts_of(self.x)[0].shape[1:])

    @property
    def tokens(self) -> bool:
        """Whether records are token numbers alone."""
        return isinstance(self.x, Tensor) and not self.x.is_floating_point()

    @property
    def form(self) -> Form:
        """The inputs of a record: their names, shapes and kinds."""
        return form_of(self.x)

    @property
    def task(self) -> Task:
        """What a model is trained for."""
        return find_task(self.declared) if self.declared else task_for(self.classes)

    @property
    def outputs(self) -> int:
        """How many values a model gives for a record, or for each of its places: one per class, label or number."""
        return self.task.outputs(self.classes, tuple(self.y.shape[1:]))

    @property
    def labels(self) -> tuple[str, ...]:
        """What the classes are called, in the order of their numbers; empty for regression."""
        return self.class_names or tuple(map(str, range((self.classes if self.task.usual else None) or 0)))

    def in_own_unit(self, values: Tensor) -> Tensor:
        """Targets or answers of a regression in the target's own unit, answers kept within the declared range."""
        if self.target is None:
            return values
        low, high = self.target
        return (values.clamp(-1, 1) + 1) / 2 * (high - low) + low

    @cached_property
    def shares(self) -> Tensor:
        """p_i = n_i / Σ n_j over the training records, float64."""
        sizes = torch.from_numpy(self.held("train").counts).double()
        return sizes / sizes.sum()

    def part(self, client: str) -> "Federation":
        """The federation whose pool holds this client's records: this one, unless clients' records differ in shape."""
        return self

    def with_inputs(self, x: Inputs) -> "Federation":
        """The same clients and targets over other inputs of the same records, such as their features."""
        return replace(self, clients=Clients(self.names, x, self.y, self.clients[0].train.unit, *self._held), x=x)

    def class_counts(self, part: Part = "train") -> NDArray[np.int64]:
        """How many records of each class each client holds: (clients, classes)."""
        if self.classes is None or not self.task.usual:
            raise DataError(f"{self.name} is for {self.task.name}: it has no classes to count")
        cells = self.held(part).owner * self.classes + self.targets(part)
        return torch.bincount(cells, minlength=len(self) * self.classes).reshape(len(self), self.classes).numpy()

    def holdings(self) -> dict[str, object]:
        """Who holds how many records, and of which classes: what clients.json of a run holds."""
        return {
            "names": list(self.names),
            "train": self.held("train").counts.tolist(),
            "test": self.held("test").counts.tolist(),
            "classes": None if self.classes is None or not self.task.usual else self.class_counts().tolist(),
            "class_names": list(self.labels),
        }

    def fingerprint(self) -> str:
        """SHA-256 of all records and of who holds which: equal only for the same data dealt out in the same way."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        if not is_plain(self.form):
            digest.update(str(self.form).encode())
        for pool in (*parts_of(self.x), self.y):
            digest.update(f"{pool.dtype}{tuple(pool.shape)}".encode())
            digest.update(pool.contiguous().numpy().data)
        digest.update(f"classes {self.classes}".encode())
        if self.declared:
            digest.update(f"task {self.task.name}".encode())
        if (unit := self.clients[0].train.unit) is not None:
            digest.update(unit.contiguous().numpy().data)
        for name, train, test in zip(map(str.encode, self.names), self.held("train"), self.held("test"), strict=True):
            digest.update(f"{len(name)} {len(train)} {len(test)} ".encode() + name)
            digest.update(train.data)
            digest.update(test.data)
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
        """Deals a dataset out to clients, then splits each client's records into train and test at random.

        Args:
            dataset: from `fedfdp.data.load`.
            clients: how many; needed except with `how="column"`.
            how: "dirichlet", "iid", "shards", or "column", where each value of the column is a client.
            beta: for the Dirichlet partition: the smaller, the more unequal.
            shards_per_client: for the shards partition.
            column: for the column partition.
            test_fraction: the part of each client's records that is for the test, rounded up.
            fraction: the part of the records that is dealt out, drawn at random; 1 takes all.
            seed: the same seed gives the same federation.

        Returns:
            The clients, named client-0, client-1, … or after the column's values.
        """
        kept = subsample(len(dataset), fraction, seed)
        if fraction < 1:
            dataset = dataset.subset(kept)
        names, indices = deal(dataset, clients, how, beta, shards_per_client, column, stream(seed, PARTITION))
        rng = stream(seed, SPLIT)
        parts = [split(index, test_fraction, rng) for index in indices]
        dealt = cls.over(dataset.x, dataset.y, dataset.classes, dataset.name, names, parts)
        return replace(dealt, class_names=dataset.class_names, groups=dataset.groups)

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, object],
        *,
        test_fraction: float = 0.25,
        classes: int | None = None,
        task: str | Task = "",
        units: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
        name: str = "clients",
        unit_name: str = "person",
    ) -> "Federation":
        """Your own clients: `{"name": (x, y)}`, split at random, or `{"name": (x_train, y_train, x_test, y_test)}`.

        Args:
            clients: arrays or tensors by client name, with records along the first axis. Where a model takes several
                inputs, x is a tuple of arrays, or a dict of them by the names of the model's arguments. A torch
                `Dataset` of (x, y) may take the place of a pair; its items are read once.
            test_fraction: the part for the test where a client gives (x, y), rounded up.
            classes: needed if y are class numbers 0, 1, … and not every class occurs. Without it, floating-point y
                mean regression.
            task: what the targets are, where that is neither one class per record nor numbers: "multi-label",
                "tokens", "language", "segmentation", package.module:TASK, or a `fedfdp.Task` (docs/models.md).
            units: by client name, the person of each record, in the order of the records. A person's records then stay
                together in the split, are drawn together and are protected together.
            seed: of the split.
            name: of the data, for display.
            unit_name: what a unit is called, for display.

        Returns:
            The clients in the order given.
        """
        if not isinstance(clients, Mapping) or not clients:
            raise DataError("no clients by name: give at least one as {'name': (x, y)}")
        rng = stream(seed, SPLIT)
        of_whom = None if units is None else {client: persons_of(client, units) for client in clients}
        person = None if of_whom is None else numbered(of_whom.values())
        aim = find_task(task) if task else None
        xs: list[Inputs] = []
        ys: list[Tensor] = []
        parts: list[tuple[Tensor, Tensor]] = []
        start = 0
        for client, given in clients.items():
            pairs, sizes = pairs_of(client, given), []
            for x, y in pairs:
                xs.append(as_inputs(client, x, like=xs[0] if xs else None))
                first = ys[0] if ys else None
                ys.append(as_targets(client, y, records=len(xs[-1]), classes=classes, like=first, task=aim))
                sizes.append(len(xs[-1]))
            index = np.arange(start, start + sum(sizes))
            start += sum(sizes)
            if of_whom is not None and len(of_whom[client]) != sum(sizes):
                raise DataError(f"client {client!r}: {sum(sizes)} records, {len(of_whom[client])} in units")
            if len(pairs) == 1:
                parts.append(split(index, test_fraction, rng, person))
            else:
                parts.append((torch.from_numpy(index[: sizes[0]]), torch.from_numpy(index[sizes[0] :])))
        pool_y = torch.cat(ys)
        if aim is not None and aim.targets == "labels":
            classes = 2  # of each label, as in files: losses then begin at ln 2, however many labels there are
        if classes is None and not pool_y.is_floating_point():
            classes = int(pool_y.max()) + 1 if len(pool_y) else 1
        x, names = joined(xs), list(clients)
        return cls.over(x, pool_y, classes, name, names, parts, unit=person, unit_name=unit_name, task=task)

    @classmethod
    def over(
        cls,
        x: Inputs,
        y: Tensor,
        classes: int | None,
        name: str,
        names: Sequence[str],
        parts: Iterable[tuple[Tensor, Tensor]],
        *,
        unit: NDArray[np.int64] | None = None,
        unit_name: str = "person",
        task: str | Task = "",
    ) -> "Federation":
        """Clients over a pool that exists already and is not copied: the way to a million of them.

        `parts` are each client's train and test positions, which may come one at a time. The rest: as `from_clients`.
        """
        of_whom = None if unit is None else torch.from_numpy(unit)
        held = gathered(pair for _, pair in zip(names, parts, strict=True))
        members = Clients(names, x, y, of_whom, *held)
        named = "record" if unit is None else unit_name
        return cls(clients=members, classes=classes, name=name, x=x, y=y, unit=named, declared=task)
