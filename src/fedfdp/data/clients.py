"""The clients of a federation. Many of them are a few long arrays: a client is made when it is first asked for."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.trees import Inputs
from fedfdp.data.shard import Shard


@dataclass(frozen=True, eq=False)
class ClientData:
    """A client: one data holder with its records."""

    name: str  # how budgets, ledgers and reports name it
    train: Shard  # what is trained on, and protected
    test: Shard  # what the model is judged by; empty if the holder has a single record or gave no test records

    @property
    def size(self) -> int:
        """n_i, which the holder declares: the number of its training records, or of the persons in them."""
        return len(self.train) if self.train.persons is None else len(self.train.persons)


@dataclass(frozen=True, eq=False)
class Held:
    """Which records of a pool each client holds, one client after the other."""

    rows: Tensor
    counts: NDArray[np.int64]  # how many rows are each client's

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each client's rows begin; at the end, how many rows there are."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def owner(self) -> Tensor:
        """Whose each row is: the client's place."""
        return torch.repeat_interleave(torch.arange(len(self.counts)), torch.from_numpy(self.counts))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """The rows of each client."""
        rows, starts = self.rows.numpy(), self.starts.tolist()
        return (rows[start:stop] for start, stop in pairwise(starts))

    def __getitem__(self, place: int) -> Tensor:
        return self.rows[self.starts[place] : self.starts[place + 1]].clone()  # not a view: it may be sent elsewhere


def gathered(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Held, Held]:
    """From each client's train and test positions, one client at a time: nothing else is kept of any of them."""
    rows, counts = (bytearray(), bytearray()), (array("q"), array("q"))
    for pair in parts:
        for index, all_rows, all_counts in zip(pair, rows, counts, strict=True):
            all_rows += index.long().contiguous().numpy().data
            all_counts.append(index.shape[0])
    train, test = (
        Held(torch.frombuffer(bytes_ or bytearray(8), dtype=torch.int64)[: len(bytes_) // 8], np.array(many))
        for bytes_, many in zip(rows, counts, strict=True)
    )
    return train, test


class Clients(Sequence[ClientData]):
    """Clients over one pool. One that was asked for by its place is kept, with what it has computed of its records."""

    def __init__(
        self, names: Sequence[str], x: Inputs, y: Tensor, unit: Tensor | None, train: Held, test: Held
    ) -> None:
        self.names, self.x, self.y, self.unit, self.train, self.test = tuple(names), x, y, unit, train, test
        self._made: dict[int, ClientData] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[ClientData]:
        return (self._made.get(place) or self._make(place) for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> ClientData: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ClientData, ...]: ...
    def __getitem__(self, place: int | slice) -> ClientData | tuple[ClientData, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        place = range(len(self))[place]
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    def _make(self, place: int) -> ClientData:
        train, test = (Shard(self.x, self.y, held[place], self.unit) for held in (self.train, self.test))
        return ClientData(self.names[place], train, test)
