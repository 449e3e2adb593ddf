"""What is in a file that has no config yet, and a start for the settings that training on it needs.

The holder fills in the ranges: if they were read from the data, they would give away what privacy is to protect.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from fedfdp.core.errors import DataError
from fedfdp.data.files.arrays import Archive
from fedfdp.data.files.cells import Place, distinct
from fedfdp.data.files.images import images_in, shape_of
from fedfdp.data.files.paths import ARRAYS, KINDS, TABLES, entries, existing
from fedfdp.data.files.tables import open_table
from fedfdp.data.schema import Facts

FEW = 12  # a text column with at most so many different values is likely categorical


@dataclass(frozen=True)
class Found:
    """One column, array or folder: its type, how much of it there is and what is missing."""

    name: str
    type: str
    missing: int
    different: int | None  # how many different values a column has, at most FEW + 1; None if not counted


@dataclass(frozen=True)
class Description:
    path: str
    records: int
    found: tuple[Found, ...]
    settings: str  # a start for [data]


def describe(path: Path) -> Description:
    existing(path)
    if path.is_dir():
        return _folder(path)
    if path.suffix.lower() in ARRAYS:
        members = Archive(path).members.values()
        found = tuple(Found(m.name, f"{m.dtype} {m.shape}", 0, None) for m in members)
        records = next((m.shape[0] for m in members if m.name == "x"), 0)
        return Description(str(path), records, found, f'[data]\nsource = "{path.name}"\nclasses = 2  # or target')
    if path.suffix.lower() not in TABLES:
        raise DataError(f"{path}: files of kind {path.suffix or 'none'!r} are not read; give {KINDS}")
    return _table(path)


def _table(path: Path) -> Description:
    table = open_table(path, Facts())
    types = table.types()
    missing, values = dict.fromkeys(table.names, 0), {name: set[str]() for name in table.names}
    records = 0
    for piece in table.pieces(dict.fromkeys(table.names, False)):
        records += len(piece)
        for name in table.names:
            column = piece.column(name)
            if pa.types.is_nested(column.type):
                raise DataError(f"{path}, column {name!r}: holds {column.type}; only plain columns are read")
            missing[name] += pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
            if len(values[name]) <= FEW:
                values[name].update(text for text in distinct(column, Place(str(path), name))[0] if text)
    found = tuple(Found(n, types[n], missing[n], min(len(values[n]), FEW + 1)) for n in table.names)
    texts = [c for c in found if c.type in ("string", "large_string", "bool") or c.type.startswith("dictionary")]
    free = ", ".join(f'"{column.name}"' for column in texts if (column.different or 0) > FEW)
    lines = [f'[data]\nsource = "{path.name}"\nholder = "…"\nlabel = "…"\nclasses = ["…", "…"]']
    lines += [f"ignore = [{free}]  # texts of many kinds", ""] if free else [""]
    lines.append("[data.columns]  # without those of holder and label")
    for column in found:
        if column not in texts:
            lines.append(f'"{column.name}" = [low, high]')
        elif (column.different or 0) <= FEW:
            lines.append(f'"{column.name}" = ["…", "…"]  # categories')
    return Description(str(path), records, found, "\n".join(lines))


def _folder(path: Path) -> Description:
    found, records = [], 0
    for entry in entries(path, path):
        if entry.is_file() and entry.suffix.lower() in TABLES + ARRAYS:
            rows = describe(entry).records
        elif entry.is_dir():
            inside = images_in(entry, path) or [
                image for folder in entries(entry, path) if folder.is_dir() for image in images_in(folder, path)
            ]
            for image in inside[:1]:
                shape_of(image)
            rows = len(inside)
        else:
            continue
        records += rows
        found.append(Found(entry.name, f"{rows:,} records", 0, None))
    if not found:
        raise DataError(f"{path}: holds nothing that can be read; put a file or a folder for each holder there")
    return Description(str(path), records, tuple(found), f'[data]\nsource = "{path.name}/"\nclasses = ["…", "…"]')
