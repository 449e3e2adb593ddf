"""What a node remembers between rounds, in one file that is whole or absent: its method's state, and its last upload.

The upload is kept so that the identical question gets the identical bytes, free, also after a crash of either side.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import RunError

STATE = "state"
_PARTS = ("memory", "upload", "next")


@dataclass(frozen=True)
class Remembered:
    """`memory`: before `round`. `upload`: the answer to `request` in `round`. `next`: the memory after it.

    `next` becomes the memory once the coordinator says that the upload was used.
    """

    run: str = ""
    round: int = -1
    request: str = ""
    charged: int = 0  # what the ledger showed by then
    memory: bytes = field(default=b"", repr=False)
    upload: bytes = field(default=b"", repr=False)
    next: bytes = field(default=b"", repr=False)

    def settled(self, run: str, last: int) -> "Remembered":
        """What the next round starts from: `last` says whether the last upload was used. Another run starts anew."""
        if run != self.run:
            return Remembered(run=run)
        if last == self.round and self.upload:
            return replace(self, memory=self.next)
        return self


def save(folder: Path, remembered: Remembered) -> None:
    """Puts it on the disk, whole."""
    parts = [getattr(remembered, name) for name in _PARTS]
    head = {f.name: getattr(remembered, f.name) for f in fields(remembered) if f.name not in _PARTS}
    body = b"".join(parts)
    line = json.dumps({**head, "sizes": [len(part) for part in parts], "sum": hashlib.sha256(body).hexdigest()})
    files.write_whole(folder / STATE, line.encode() + b"\n" + body)


def load(folder: Path) -> Remembered:
    path = folder / STATE
    if not path.exists():
        return Remembered()
    line, _, body = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(line)
        sizes, expected = head.pop("sizes"), head.pop("sum")
    except (ValueError, KeyError, AttributeError):
        sizes, expected, head = [], "", {}
    if hashlib.sha256(body).hexdigest() != expected or sum(sizes) != len(body):
        raise RunError(f"{path} is corrupt (its checksum does not fit); move it away: the ledger stays as it is")
    parts, start = [], 0
    for size in sizes:
        parts.append(body[start : start + size])
        start += size
    return replace(Remembered(**head), memory=parts[0], upload=parts[1], next=parts[2])
