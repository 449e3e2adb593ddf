"""How a dataset is laid out in files, and what its files hold: whole byte arrays, or the rows of a table.

Never scales, shuffles or repairs anything.
"""

import csv
import gzip
import hashlib
import io
import pickle
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# What reading a damaged file may raise.
DAMAGE = (OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, zlib.error, pickle.UnpicklingError)

_LARGEST_FILE = 256 * 2**20  # no file of these datasets is larger: a compressed one that is cannot fill the memory


@dataclass(frozen=True)
class Records:
    """All records of a dataset, the official training part first: x (N, C, H, W) and y (N,), as stored."""

    x: Bytes
    y: Bytes

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or self.y.ndim != 1:
            raise ValueError(f"{len(self.x)} images but labels of shape {self.y.shape}")

    def digest(self) -> str:
        content = hashlib.sha256(np.ascontiguousarray(self.x).data)
        content.update(np.ascontiguousarray(self.y).data)
        return content.hexdigest()

    def whole(self) -> "Records":
        """The same in one piece of memory."""
        return Records(np.ascontiguousarray(self.x), np.ascontiguousarray(self.y))


@dataclass(frozen=True)
class Rows:
    """A table as CSV text with a header, in a form that depends on its cells alone."""

    text: bytes

    @classmethod
    def of(cls, names: Sequence[str], rows: Iterable[Sequence[str]]) -> "Rows":
        """Written from its cells: commas, quotes only where they are needed, lines that end with a line feed."""
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
        return cls(target.getvalue().encode())

    def __len__(self) -> int:
        return max(self.text.count(b"\n") - 1, 0)

    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    def whole(self) -> "Rows":
        """Itself: a text is in one piece."""
        return self


def cells(content: bytes) -> Iterable[dict[str, str]]:
    """The rows of a CSV file, cell by column name."""
    return csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))


@dataclass(frozen=True)
class Layout:
    """One way in which a dataset comes as files."""

    title: str
    files: tuple[str, ...]  # their names, in the order in which `read` takes their contents
    read: Callable[[Sequence[bytes]], Records | Rows]

    def locate(self, folder: Path) -> list[Path] | None:
        """The files in this very folder, if all are there: plain, gzipped, or with the dot that some copies have."""
        found = []
        for name in self.files:
            spellings = [base + end for base in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
            path = next((folder / s for s in spellings if (folder / s).is_file()), None)
            if path is None:
                return None
            found.append(path)
        return found

    def load(self, paths: Sequence[Path]) -> Records | Rows:
        return self.read([_contents(path) for path in paths]).whole()


def _contents(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"{path.name} holds more than {_LARGEST_FILE // 2**20} MiB")
    return content
