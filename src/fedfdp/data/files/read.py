"""Your own files read into one pool of records, in one pass.

The memory for the pool is set aside once and filled piece by piece; no file is held in memory beside it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError, SettingError, require
from fedfdp.core.trees import Form, Inputs, Leaf, Tree, is_plain
from fedfdp.data.columns import PRIVATE, Numeric
from fedfdp.data.files.arrays import ArraySource
from fedfdp.data.files.discover import sources_of
from fedfdp.data.files.paths import check_size, existing
from fedfdp.data.files.source import Names, Numbers, Piece, Source
from fedfdp.data.files.tables import TableSource
from fedfdp.data.files.words import tokenizer_at
from fedfdp.data.schema import Facts, class_names, favourable_of, group_of, task_of
from fedfdp.fairness.metrics.groups import Groups

Say = Callable[[str], None]
SAY_EVERY = 1.0  # seconds


@dataclass(frozen=True, eq=False)
class FileRecords:
    """A pool, and what the files say about its records: who holds each, whose it is, and which are for the test."""

    name: str
    x: Inputs
    y: Tensor
    classes: int | None  # None for regression
    holders: tuple[str, ...] | None  # in alphabetical order
    owner: NDArray[np.int64] | None  # for each record, the position of its holder in `holders`
    test: NDArray[np.bool_] | None
    unit: NDArray[np.int64] | None = None  # for each record, its person as a number
    unit_name: str = "record"
    task: str = ""  # what the targets are, where that is declared
    groups: Groups | None = None  # which of the groups that are compared each record belongs to
    persons: tuple[str, ...] = ()  # their names, in the order of their numbers

    @property
    def whom(self) -> list[str] | None:
        """For each record, the name of its person."""
        return None if self.unit is None else [self.persons[number] for number in self.unit.tolist()]


def read_records(facts: Facts, path: Path, *, progress: Say | None = None) -> FileRecords:
    """The records of a file, or of a folder with a file or folder for each holder."""
    named = sources_of(facts, existing(path), labelled=True)
    _check_scaled(named, path)
    return _records(facts, path, named, progress)


def read_unscaled(facts: Facts, path: Path, *, progress: Say | None = None) -> tuple[FileRecords, list[Numeric]]:
    """Only the columns whose ranges are private, unscaled, NaN where a value is missing; and which columns they are."""
    named, columns = list[tuple[str | None, Source]](), list[Numeric]()
    for name, source in sources_of(facts, existing(path), labelled=True):
        if isinstance(source, TableSource):
            columns = _unscaled(source)
            source = replace(source, columns=tuple(columns))
        named.append((name, source))
    return _records(facts, path, named, progress), columns


def read_inputs(facts: Facts, path: Path, *, progress: Say | None = None) -> Inputs:
    """Only the inputs, laid out and scaled as in training; columns for label, holder and test may be there or not."""
    named = sources_of(facts, existing(path, "check the path"), labelled=False)
    if len(named) > 1:
        raise DataError(f"{path}: a folder of several files; give one of them")
    _check_scaled(named, path)
    return _Pool(named).filled(progress).x


def _check_scaled(named: Sequence[tuple[str | None, Source]], path: Path) -> None:
    for _, source in named:
        if waiting := _unscaled(source):
            allowed = f"{path} needs a range of {waiting[0].name!r}, and none was estimated here"
            raise SettingError(f"data.columns.{waiting[0].name}", PRIVATE, allowed, "give a public range")


def _unscaled(source: Source) -> list[Numeric]:
    columns = source.columns if isinstance(source, TableSource) else ()
    return [column for column in columns if isinstance(column, Numeric) and column.range is None]


def _records(facts: Facts, path: Path, named: Sequence[tuple[str | None, Source]], progress: Say | None) -> FileRecords:
    pool = _Pool(named).filled(progress)
    names, owner = list(pool.holders), None
    if names:
        order = sorted(range(len(names)), key=lambda code: names[code])
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        names, owner = [names[code] for code in order], rank[pool.owner]
    y = torch.from_numpy(np.concatenate(pool.y))
    if (task := task_of(facts)) is not None and task.targets == "labels" and isinstance(facts.classes, tuple):
        allowed = f"names {len(facts.classes)} labels, and records have {math.prod(y.shape[1:])}"
        require(
            len(facts.classes) == math.prod(y.shape[1:]), "data.classes", facts.classes, allowed, "name every label"
        )
    return FileRecords(
        path.name,
        pool.x,
        y,
        classes=_classes(facts),
        holders=tuple(names) if names else None,
        owner=owner,
        test=pool.test if pool.marked else None,
        unit=np.concatenate(pool.person) if pool.person else None,
        unit_name=facts.unit or "record",
        task=facts.task or "",
        persons=tuple(pool.persons),
        groups=_groups(facts, np.concatenate(pool.group)) if pool.group else None,
    )


def _groups(facts: Facts, of: NDArray[np.int64]) -> Groups:
    column = group_of(facts)
    assert column is not None
    names = (*column.categories, *(("other",) if column.other else ()))
    return Groups(column.name, names, of, favourable_of(facts, class_names(facts)))


def _classes(facts: Facts) -> int | None:
    task = task_of(facts)
    if facts.task == "language" and facts.classes is None and (words := facts.words) is not None:
        return len(tokenizer_at(words.tokenizer, f"data.columns.{words.name}.tokenizer"))
    return 2 if task is not None and task.targets == "labels" else len(class_names(facts)) or None


def form_in(source: Source) -> Form:
    """The inputs of a source's records."""
    several: Form = getattr(source, "inputs", ())
    return several or (Leaf("", source.shape, np.dtype(source.dtype).name),)


def _shown(source: Source) -> str:
    form = form_in(source)
    return str(form[0].shape) if is_plain(form) else ", ".join(f"{leaf.name} {leaf.shape}" for leaf in form)


class _Pool:
    """The memory for the records of all sources, filled piece by piece."""

    def __init__(self, named: Sequence[tuple[str | None, Source]]) -> None:
        self.named, self.first = named, named[0][1]
        self.total = sum(self._rows(source) for _, source in named)
        size = self.total * sum(math.prod(leaf.shape) * np.dtype(leaf.kind).itemsize for leaf in form_in(self.first))
        check_size(self.first.path, size, f"{self.total:,} records")
        self.parts: list[Numbers] = [np.empty((self.total, *leaf.shape), leaf.kind) for leaf in form_in(self.first)]
        self.y: list[Numbers] = []
        self.owner, self.test = np.zeros(self.total, np.int32), np.zeros(self.total, np.bool_)
        self.marked = False  # whether any piece says which records are for the test
        self.holders: dict[str, int] = {}
        self.persons: dict[str, int] = {}
        self.person: list[NDArray[np.int64]] = []
        self.group: list[NDArray[np.int64]] = []

    def _rows(self, source: Source) -> int:
        """How many rows a source has at most, if its records are like those of the first."""
        first, rows = self.first, source.most_rows()
        if form_in(source) != form_in(first):
            shapes = f"records of shape {_shown(source)}, where {first.path.name} has {_shown(first)}"
            raise DataError(f"{source.path}: {shapes}; give every holder the same columns")
        if isinstance(source, ArraySource) and isinstance(first, ArraySource) and source.bounds != first.bounds:
            where = f"arrays of another type than in {first.path.name}, which would be scaled otherwise"
            raise DataError(f"{source.path}: {where}; save all in the same type")
        if isinstance(source, TableSource) and isinstance(first, TableSource):
            # A pattern may have found other columns here, though as many.
            known = {column.name for column in first.columns}
            for other in (column.name for column in source.columns if column.name not in known):
                where = f"column {other!r} is not in {first.path.name}"
                raise DataError(f"{source.path}: {where}; give every holder the same")
        if rows < 1:
            raise DataError(f"{source.path}: an empty holder: no records; fill it or remove it")
        return rows

    def filled(self, progress: Say | None) -> "_Pool":
        clock, row = _Clock(self.first.path.name, self.total, progress), 0
        for holder, source in self.named:
            start = row
            for piece in source.pieces():
                count = len(piece.x[0] if isinstance(piece.x, tuple) else piece.x)
                self._put(piece, slice(row, row + count), holder)
                row += count
                clock.at(row)
            if row == start:
                raise DataError(f"{source.path}: an empty holder: no records below the header; fill it or remove it")
        clock.done(row)
        self.owner, self.test = self.owner[:row], self.test[:row]
        self.parts = [part[:row] for part in self.parts]
        return self

    @property
    def x(self) -> Inputs:
        """All inputs: a tensor, or a tree of several."""
        tensors = [torch.from_numpy(part) for part in self.parts]
        form = form_in(self.first)
        return tensors[0] if is_plain(form) else Tree(tensors, [leaf.name for leaf in form])

    def _put(self, piece: Piece, rows: slice, holder: str | None) -> None:
        for part, given in zip(self.parts, piece.x if isinstance(piece.x, tuple) else (piece.x,), strict=True):
            part[rows] = given
        if piece.y is not None:
            self.y.append(piece.y)
        if piece.holders is not None:
            self.owner[rows] = _numbers(piece.holders, self.holders)
        elif holder is not None:
            self.owner[rows] = self.holders.setdefault(holder, len(self.holders))
        if piece.persons is not None:
            self.person.append(_numbers(piece.persons, self.persons))
        if piece.groups is not None:
            self.group.append(piece.groups)
        if piece.test is not None:
            self.test[rows], self.marked = piece.test, True


def _numbers(names: Names, known: dict[str, int]) -> NDArray[np.int64]:
    """Each record's name as a number; a name that is not known yet gets the next one."""
    different, which = names
    return np.array([known.setdefault(name, len(known)) for name in different], np.int64)[which]


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
