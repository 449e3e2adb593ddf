"""Your own files as one pool of records: which files there are, who holds them, and all of them read in one pass.

The pool is set aside once and filled piece by piece; no file is held in memory beside it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data.files.arrays import Archive
from fedfdp.data.files.images import images_in
from fedfdp.data.files.paths import ARRAYS, KINDS, TABLES, check_size, entries, existing
from fedfdp.data.files.pieces import ArraySource, ImageSource, Source, TableSource, check_label
from fedfdp.data.files.tables import open_table
from fedfdp.data.schema import PRIVATE, Column, Facts, Numeric, class_names, columns_of

Say = Callable[[str], None]
SAY_EVERY = 1.0  # seconds


@dataclass(frozen=True, eq=False)
class OwnRecords:
    """A pool with who holds which record and which are for the test, as far as the files say so."""

    name: str
    x: Tensor
    y: Tensor
    classes: int | None
    holders: tuple[str, ...] | None  # in alphabetical order
    owner: NDArray[np.int64] | None  # of each record, its holder's position
    test: NDArray[np.bool_] | None
    unit: NDArray[np.int64] | None = None  # of each record, whose it is, by number
    unit_name: str = "record"


def read_records(facts: Facts, path: Path, *, progress: Say | None = None) -> OwnRecords:
    """The records of a file, or of a folder with a file or folder for each holder."""
    named = sources_of(facts, existing(path), labelled=True)
    _check_scaled(named, path)
    return _records(facts, path, named, progress)


def read_unscaled(facts: Facts, path: Path, *, progress: Say | None = None) -> tuple[OwnRecords, list[Numeric]]:
    """The columns whose ranges are private, as they are and NaN where a value is missing; which columns they are."""
    named, columns = [], list[Numeric]()
    for name, source in sources_of(facts, existing(path), labelled=True):
        if isinstance(source, TableSource):
            columns = _unscaled(source)
            source = replace(source, columns=tuple(columns))
        named.append((name, source))
    return _records(facts, path, named, progress), columns


def read_inputs(facts: Facts, path: Path, *, progress: Say | None = None) -> Tensor:
    """The inputs alone, laid out and scaled as in training; label, holder and test columns may be there or not."""
    named = sources_of(facts, existing(path, "check the path"), labelled=False)
    if len(named) > 1:
        raise DataError(f"{path}: a folder of several files; give one of them")
    _check_scaled(named, path)
    return torch.from_numpy(_gathered([named[0][1]], [None], progress)[0])


def _check_scaled(named: Sequence[tuple[str | None, Source]], path: Path) -> None:
    for _, source in named:
        if waiting := _unscaled(source):
            allowed = f"{path} needs a range of {waiting[0].name!r}, and none was estimated here"
            raise SettingError(f"data.columns.{waiting[0].name}", PRIVATE, allowed, "give a public range")


def _unscaled(source: Source) -> list[Numeric]:
    columns = source.columns if isinstance(source, TableSource) else ()
    return [column for column in columns if isinstance(column, Numeric) and column.range is None]


def _another_column(source: Source, first: Source) -> str | None:
    """An input that a pattern found in this table only: as many columns are not yet the same."""
    if not isinstance(source, TableSource) or not isinstance(first, TableSource):
        return None
    known = {column.name for column in first.columns}
    return next((column.name for column in source.columns if column.name not in known), None)


def _records(facts: Facts, path: Path, named: Sequence[tuple[str | None, Source]], progress: Say | None) -> OwnRecords:
    x, y, owner, test, names, unit = _gathered([source for _, source in named], [name for name, _ in named], progress)
    assert y is not None
    holders = None
    if owner is not None:
        order = sorted(range(len(names)), key=lambda code: names[code])
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        holders, owner = tuple(names[code] for code in order), rank[owner]
    classes = len(class_names(facts)) or None
    whose = facts.unit or "record"
    return OwnRecords(path.name, torch.from_numpy(x), torch.from_numpy(y), classes, holders, owner, test, unit, whose)


def sources_of(facts: Facts, path: Path, *, labelled: bool) -> list[tuple[str | None, Source]]:
    """Each source with its holder's name, None where the records themselves say it or nothing does."""
    if path.is_file():
        return [(None, _file(facts, path, labelled))]
    inside = entries(path, path)
    files = [entry for entry in inside if entry.is_file() and entry.suffix.lower() in TABLES + ARRAYS]
    folders = [entry for entry in inside if entry.is_dir()]
    if files:
        if facts.holder is not None:
            raise SettingError("data.holder", facts.holder, f"{path} has a file for each holder", "leave it out")
        if len({file.stem for file in files}) < len(files):
            raise DataError(f"{path}: two files of the same name; a file's name is its holder's, so they must differ")
        return [(file.stem, _file(facts, existing(file), labelled)) for file in files]
    if not labelled and (loose := images_in(path, path)):
        return [(None, ImageSource(path, (("", tuple(loose)),), facts, labelled))]
    if any(images_in(folder, path) for folder in folders):
        return [(None, _images(facts, path, path, labelled))]
    found = [(folder.name, _folder(facts, folder, path, labelled)) for folder in folders]
    if not found:
        raise DataError(f"{path}: holds nothing that can be read; put a file or a folder for each holder there")
    return list(found)


def _file(facts: Facts, path: Path, labelled: bool) -> Source:
    kind = path.suffix.lower()
    if kind in ARRAYS:
        _check_used(facts, path, "an archive", ("columns", "ignore"), labelled)
        return ArraySource(path, Archive(path), facts, labelled)
    if kind not in TABLES:
        raise DataError(f"{path}: files of kind {kind or 'none'!r} are not read; give {KINDS}")
    table = open_table(path)
    _check_used(facts, path, "a table", ("range",), labelled)
    if labelled:
        _check_named(facts, path, table.names)
    columns = [_found(facts, column) for column in columns_of(facts, table.names, str(path))]
    return TableSource(path, table, facts, tuple(columns), labelled)


def _check_named(facts: Facts, path: Path, names: Sequence[str]) -> None:
    """The columns that settings name by what they are for."""
    if facts.label is None:
        raise SettingError("data.label", None, f"which column of {path.name} is to be predicted?", "set it in [data]")
    for setting, name in ((s, getattr(facts, s)) for s in ("holder", "label", "test", "unit")):
        if name is not None and name not in names:
            raise DataError(f"{path}: no column {name!r} as data.{setting} says; {nearest(name, names)}")
    check_label(facts, facts.label)


def _found(facts: Facts, column: Column) -> Column:
    """A private column with the range that was estimated, if it was."""
    if isinstance(column, Numeric) and column.range is None and facts.estimate is not None:
        return replace(column, range=facts.estimate.found.get(column.name))
    return column


def _folder(facts: Facts, folder: Path, top: Path, labelled: bool) -> Source:
    """A holder's folder: one file, or a folder of images for each class."""
    files = [entry for entry in entries(folder, top) if entry.is_file() and entry.suffix.lower() in TABLES + ARRAYS]
    if len(files) > 1:
        raise DataError(f"{folder}: {len(files)} files, {files[0].name} and others; a holder's folder has one")
    return _file(facts, existing(files[0]), labelled) if files else _images(facts, folder, top, labelled)


def _images(facts: Facts, folder: Path, top: Path, labelled: bool) -> Source:
    groups = [(entry.name, tuple(images_in(entry, top))) for entry in entries(folder, top) if entry.is_dir()]
    if not any(paths for _, paths in groups):
        raise DataError(f"{folder}: an empty holder: no file and no folder of images in it; fill it or remove it")
    _check_used(facts, folder, "images", ("holder", "label", "test", "columns", "ignore", "range"), labelled)
    return ImageSource(folder, tuple(groups), facts, labelled)


def _check_used(facts: Facts, path: Path, kind: str, useless: Sequence[str], labelled: bool) -> None:
    """A setting that would be passed over is refused, where a run or a node is begun."""
    for name in useless if labelled else ():
        if (given := getattr(facts, name)) not in (None, {}, ()):
            raise SettingError(f"data.{name}", given, f"{path.name} is {kind}, which has no use for it", "leave it out")


def _gathered(
    sources: Sequence[Source], holders: Sequence[str | None], progress: Say | None
) -> tuple[
    NDArray[Any],
    NDArray[Any] | None,
    NDArray[np.int64] | None,
    NDArray[np.bool_] | None,
    list[str],
    NDArray[np.int64] | None,
]:
    """Inputs, targets, owners, test marks, the owners' names and whose each record is, over all sources."""
    first, most = sources[0], [source.most_rows() for source in sources]
    for source, rows in zip(sources, most, strict=True):
        if source.shape != first.shape or source.dtype != first.dtype:
            shapes = f"records of shape {source.shape}, where {first.path.name} has {first.shape}"
            raise DataError(f"{source.path}: {shapes}; give every holder the same columns")
        if other := _another_column(source, first):
            raise DataError(f"{source.path}: column {other!r} is not in {first.path.name}; give every holder the same")
        if rows < 1:
            raise DataError(f"{source.path}: an empty holder: no records; fill it or remove it")
    total = sum(most)
    check_size(first.path, total * int(np.prod(first.shape)) * first.dtype().itemsize, f"{total:,} records")
    x = np.empty((total, *first.shape), first.dtype)
    ys: list[NDArray[Any]] = []
    owner, test = np.zeros(total, np.int32), np.zeros(total, np.bool_)
    split = False
    names: dict[str, int] = {}
    people: dict[str, int] = {}
    whose: list[NDArray[np.int64]] = []
    clock, row = _Clock(first.path.name, total, progress), 0
    for source, holder in zip(sources, holders, strict=True):
        start = row
        for piece in source.pieces():
            end = row + len(piece.x)
            x[row:end] = piece.x
            if piece.y is not None:
                ys.append(piece.y)
            if piece.holders is not None:
                table = [names.setdefault(name, len(names)) for name in piece.holders[0]]
                owner[row:end] = np.array(table, np.int32)[piece.holders[1]]
            elif holder is not None:
                owner[row:end] = names.setdefault(holder, len(names))
            if piece.units is not None:
                table = [people.setdefault(name, len(people)) for name in piece.units[0]]
                whose.append(np.array(table, np.int64)[piece.units[1]])
            if piece.test is not None:
                test[row:end], split = piece.test, True
            row = end
            clock.at(row)
        if row == start:
            raise DataError(f"{source.path}: an empty holder: no records below the header; fill it or remove it")
    clock.done(row)
    y = np.concatenate(ys) if ys else None
    owners, marks = owner[:row].astype(np.int64) if names else None, test[:row] if split else None
    return x[:row], y, owners, marks, list(names), np.concatenate(whose) if whose else None


class _Clock:
    """Says every second how far the reading is and how long it will take."""

    def __init__(self, name: str, total: int, say: Say | None) -> None:
        self.name, self.total, self.say = name, total, say
        self.start = self.last = time.monotonic()

    def at(self, rows: int) -> None:
        now = time.monotonic()
        if self.say is not None and now - self.last >= SAY_EVERY:
            self.last = now
            left = (now - self.start) * (self.total - rows) / max(rows, 1)
            self.say(f"{self.name}: {rows:,} of {self.total:,} rows read, {left:,.0f} s left")

    def done(self, rows: int) -> None:
        if self.say is not None and self.last > self.start:
            self.say(f"{self.name}: {rows:,} rows read in {time.monotonic() - self.start:,.0f} s")
