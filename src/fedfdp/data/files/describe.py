"""What is in files that have no config yet: types, missing values, how many different values, smallest and largest.

It reads private records as they are: what it says is for the data holder only.
"""

from dataclasses import dataclass
from pathlib import Path

from fedfdp.core.errors import DataError
from fedfdp.data.files.arrays import Archive
from fedfdp.data.files.images import images_in, shape_of
from fedfdp.data.files.paths import ARRAYS, KINDS, NAMED_TABLES, TABLES, entries, existing, kind_of
from fedfdp.data.files.profile import Profile, profiles
from fedfdp.data.files.tables import open_table
from fedfdp.data.files.texts import texts_in
from fedfdp.data.schema import Facts


@dataclass(frozen=True)
class Found:
    """One array or folder: its type and how much of it there is."""

    name: str
    type: str


@dataclass(frozen=True)
class Description:
    """What is at a path: the columns of a table, or the arrays or folders that there are."""

    path: str
    records: int
    columns: tuple[Profile, ...] = ()
    parts: tuple[Found, ...] = ()
    classes: tuple[str, ...] = ()  # of a folder of images or texts: the names of its innermost folders


def describe(path: Path, decimal: str | None = None) -> Description:
    """What is in a file or folder; `decimal`: the mark before the decimals in a text file, None: judged by the file."""
    existing(path, "check the path")
    if path.is_dir():
        return _folder(path)
    if kind_of(path) in ARRAYS:
        members = Archive(path).members.values()
        records = next((m.shape[0] for m in members if m.name == "x"), 0)
        return Description(str(path), records, parts=tuple(Found(m.name, f"{m.dtype} {m.shape}") for m in members))
    if kind_of(path) not in NAMED_TABLES:
        raise DataError(f"{path}: files of kind {kind_of(path) or 'none'!r} are not read; give {KINDS}")
    records, columns = profiles(open_table(path, Facts(decimal=decimal)))  # type: ignore[arg-type]
    return Description(str(path), records, columns)


def _records_in(folder: Path, top: Path) -> list[Path]:
    """Images, or texts where there are none."""
    return images_in(folder, top) or texts_in(folder, top)


def _folder(path: Path) -> Description:
    found, records, classes = [], 0, set[str]()
    for entry in entries(path, path):
        if entry.is_file() and kind_of(entry) in TABLES + ARRAYS:
            rows = describe(entry).records
        elif entry.is_dir():
            own = _records_in(entry, path)
            folders = [] if own else [folder for folder in entries(entry, path) if folder.is_dir()]
            inside = own or [record for folder in folders for record in _records_in(folder, path)]
            classes.update([entry.name] if own else [folder.name for folder in folders])
            for image in [file for file in inside[:1] if file.suffix != ".txt"]:
                shape_of(image)
            rows = len(inside)
        else:
            continue
        records += rows
        found.append(Found(entry.name, f"{rows:,} records"))
    if not found:
        raise DataError(f"{path}: holds nothing that can be read; put a file or a folder for each holder there")
    return Description(str(path), records, parts=tuple(found), classes=tuple(sorted(classes)))
