"""Which of a node's records, or persons, are for training and which for the test: decided once, kept in its folder.

Measures of test records leave a node un-noised. A split that is drawn anew whenever the file has grown would turn
training records into test records. So each unit (a record by its content, a person by their name) is remembered by a
keyed digest, and stays on its side. Where former training units may be there in another form, no new unit is for the
test any more.
"""

import hashlib
import json
import logging
import math
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from fedfdp.core import files
from fedfdp.core.errors import RunError, SettingError
from fedfdp.core.trees import parts_of
from fedfdp.data import ClientData, Federation
from fedfdp.data.shard import Shard

log = logging.getLogger("fedfdp.node")

SIDES = "sides"
_BYTES = 16  # of a digest


@dataclass
class Sides:
    """The units that were for training, and those that were for the test. `closed`: new ones are for training."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    by: str = ""  # what a unit is: record or person; "": nothing is known yet
    train: set[bytes] = field(default_factory=set)
    test: set[bytes] = field(default_factory=set)
    closed: bool = False
    moved: int = 0  # of the given test units, those that were for training at an earlier start

    @classmethod
    def load(cls, folder: Path, *, used: bool) -> "Sides":
        """Those of the folder. `used`: it has released something; until then, sides are drawn anew at every start."""
        path = folder / SIDES
        if not path.exists():
            return cls(closed=used)  # an earlier version kept no sides: any record may have been trained on
        try:
            line, _, body = path.read_bytes().partition(b"\n")
            head = json.loads(line)
            key, train, test = bytes.fromhex(head["key"]), int(head["train"]), int(head["test"])
            if head["sum"] != hashlib.sha256(body).hexdigest() or len(body) != _BYTES * (train + test):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            fix = "put back a copy, or remove it: all records that are here are for training then"
            raise RunError(f"{path} is corrupt; {fix}") from None
        if not used:
            return cls(key=key)
        units = [body[start : start + _BYTES] for start in range(0, len(body), _BYTES)]
        return cls(key, head["by"], set(units[:train]), set(units[train:]), bool(head["closed"]))

    def save(self, folder: Path) -> None:
        """Puts them on the disk, for nobody else to read: who has the key can tell if a known record is there."""
        body = b"".join([*sorted(self.train), *sorted(self.test)])
        head = {
            "key": self.key.hex(), "by": self.by, "train": len(self.train), "test": len(self.test),
            "closed": self.closed, "sum": hashlib.sha256(body).hexdigest(),
        }  # fmt: skip
        files.write_whole(folder / SIDES, json.dumps(head).encode() + b"\n" + body, private=True)

    def divided(self, federation: Federation, fraction: float | None, whom: Sequence[str] | None = None) -> Federation:
        """The one client's records on their sides. New units fill the test part up to `fraction`; None: it is given.

        `whom`: the name of the person of each record of the pool. Equal records are one unit, and stay together.
        """
        (client,) = federation.clients
        train, test = self._units(client.train, whom), self._units(client.test, whom)
        by, before = "record" if client.train.unit is None else "person", self.by
        self.by = by
        if fraction is None:
            shown = set(test) - set(train)  # of equal records, the owner is told when the node starts
            self.moved = len(shown & self.train) if before in ("", by) else len(shown)
            self.train |= set(train)
            self.test = (self.test | shown) - self.train
            return federation
        sizes = Counter([*train, *test])
        sizes = sizes if by == "record" else Counter(set(sizes))
        self._close_if_changed(set(sizes), renamed=before not in ("", by))
        total, known = sizes.total(), sum(size for unit, size in sizes.items() if unit in self.test)
        # Slightly less before rounding up, as in a simulation's split.
        room = min(total - 1, math.ceil(fraction * total - 1e-9)) - known
        for unit in sorted(set(sizes) - self.train - self.test):
            held_out = not self.closed and sizes[unit] <= room
            (self.test if held_out else self.train).add(unit)
            room -= sizes[unit] if held_out else 0
        index = torch.cat([client.train.index, client.test.index])
        out = torch.tensor([unit in self.test for unit in (*train, *test)])
        parts = (replace(client.train, index=index[which].sort().values) for which in (~out, out))
        return replace(federation, clients=(ClientData(client.name, *parts),))

    def check(self, client: ClientData) -> None:
        """Raises where evaluation would show a unit that was trained on, or where there is nothing to show."""
        why = f"{self.moved:,} test {self.by}s were, or may have been, for training before"
        if not len(client.test):
            why = "there are no test records"
            why += "; of all that are here, any may have been trained on before" if self.closed else ""
        if self.moved or not len(client.test):
            fix = "give test records that this node never trained on, or set policy.evaluate = false"
            raise SettingError("policy.evaluate", True, why, fix)

    def _close_if_changed(self, present: set[bytes], *, renamed: bool) -> None:
        """Closes where a new unit may be one that was trained on: corrected, scaled otherwise, or under a new name."""
        gone = self.train - present
        if self.closed and not self.train:
            log.warning("it is not known which records were trained on: all that are here are for training")
        lost = bool(gone) and (self.by == "record" or len(gone) == len(self.train))
        if not self.closed and (lost or renamed):
            what = f"{len(gone):,} training {self.by}s of earlier starts are gone or have changed"
            log.warning("%s: from now on, all that come are for training, and none for the test", what)
            self.closed = True

    def _units(self, shard: Shard, whom: Sequence[str] | None) -> list[bytes]:
        """The digest of the unit of each record of a part."""
        if shard.unit is not None:
            names = shard.unit.tolist() if whom is None else whom
            return [self._digest(str(names[i]).encode()) for i in shard.index.tolist()]
        return [self._digest(content) for content in contents(shard)]

    def _digest(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=_BYTES, key=self.key).digest()


def contents(shard: Shard) -> Iterator[bytes]:
    """All values of each record of a part."""
    parts = (*parts_of(shard.x), shard.y)
    return (b"|".join(part[i].numpy().tobytes() for part in parts) for i in shard.index.tolist())
