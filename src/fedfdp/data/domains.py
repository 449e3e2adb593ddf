"""Clients whose records differ in shape or classes, in one federation: each keeps the pool that it came with.

One model cannot take them all. With own parts (`own`, `models` of `fedfdp.train`) they can share a body.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.data.clients import ClientData
from fedfdp.data.federation import Federation, Part


@dataclass(frozen=True, eq=False)
class Domains(Federation):
    """A federation of federations. What a federation says of its records is that of the first one here."""

    pools: Mapping[str, Federation] = field(default_factory=dict)  # where each client's records are, by its name

    def __post_init__(self) -> None:
        """Nothing is checked here: the parts were."""

    def part(self, client: str) -> Federation:
        return self.pools[client]

    def class_counts(self, part: Part = "train") -> NDArray[np.int64]:
        if len({pool.classes for pool in self.pools.values()}) > 1:
            raise DataError(f"{self.name}: clients have different classes, which cannot be counted together")
        return super().class_counts(part)

    def targets(self, part: Part) -> Tensor:
        shards = [client.train if part == "train" else client.test for client in self.clients]
        return torch.cat([shard.y[shard.index] for shard in shards])

    def holdings(self) -> dict[str, object]:
        differ = len({pool.classes for pool in self.pools.values()}) > 1
        return Federation.holdings(replace(self, classes=None) if differ else self)

    @cached_property
    def _fingerprint(self) -> str:
        sha = hashlib.sha256()
        for name, part in self.pools.items():
            sha.update(f"{len(name)} {name} {part.fingerprint()}".encode())
        return sha.hexdigest()


def joined(parts: Mapping[str, Federation], *, name: str = "domains") -> Domains:
    """One federation of several, whose records may differ in shape and classes.

    Args:
        parts: federations by name. A part of a single client gives that client its name; of several clients each is
            called part/client.
        name: of the data, for display.

    Returns:
        All clients, in the order given.
    """
    if not parts:
        raise DataError("no federations by name: give at least one as {'name': federation}")
    if len({(part.classes is None, part.unit, part.tokens) for part in parts.values()}) > 1:
        raise DataError("classification and regression, or different units of privacy, cannot be in one federation")
    clients: list[ClientData] = []
    pools: dict[str, Federation] = {}
    for called, part in parts.items():
        for client in part.clients:
            full = called if len(part.clients) == 1 else f"{called}/{client.name}"
            clients.append(ClientData(full, client.train, client.test))
            pools[full] = part
    first = next(iter(parts.values()))
    return Domains(tuple(clients), first.classes, name, first.x, first.y, unit=first.unit, pools=pools)
