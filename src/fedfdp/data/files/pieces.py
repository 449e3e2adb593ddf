"""One file or image folder as a stream of encoded pieces: the same for a table, an archive and images.

Says how many records there are at most before it reads one, so that what they need can be set aside once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data.files import encode, images
from fedfdp.data.files.arrays import Archive
from fedfdp.data.files.encode import Place
from fedfdp.data.files.tables import Table
from fedfdp.data.schema import PRIVATE, Column, Facts, Numeric, Range, class_names, plainest


@dataclass(frozen=True, eq=False)
class Piece:
    """Some records: inputs, and as far as they are asked for targets, holders (names and which) and test marks."""

    x: NDArray[Any]
    y: NDArray[Any] | None = None
    holders: tuple[list[str], NDArray[np.int64]] | None = None
    test: NDArray[np.bool_] | None = None
    units: tuple[list[str], NDArray[np.int64]] | None = None  # of whom a record is


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table; without `labelled` only its inputs are read."""

    path: Path
    table: Table
    facts: Facts
    columns: tuple[Column, ...]
    labelled: bool
    dtype: type[np.generic] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(column.width for column in self.columns),)

    def most_rows(self) -> int:
        return self.table.most_rows()

    def pieces(self) -> Iterator[Piece]:
        wanted = {column.name: isinstance(column, Numeric) for column in self.columns}
        facts = self.facts
        if self.labelled:
            wanted |= {name: False for name in (facts.holder, facts.test, facts.unit) if name is not None}
            if facts.label is not None:
                wanted[facts.label] = facts.classes is None
        first = 1
        for batch in self.table.pieces(wanted):
            yield self._encoded(batch, first)
            first += len(batch)

    def _encoded(self, batch: pa.RecordBatch, first: int) -> Piece:
        def at(name: str) -> tuple[pa.Array, Place]:
            return batch.column(name), Place(str(self.path), name, first)

        x, start = np.empty((len(batch), *self.shape), np.float32), 0
        for column in self.columns:
            encode.encode(column, *at(column.name), x[:, start : start + column.width])
            start += column.width
        if not self.labelled:
            return Piece(x)
        facts = self.facts
        y = None if facts.label is None else targets(facts, *at(facts.label))
        test = None if facts.test is None else encode.marks(*at(facts.test))
        who = None if facts.holder is None else holders(*at(facts.holder), "holder")
        return Piece(x, y, who, test, None if facts.unit is None else holders(*at(facts.unit), "person"))


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An archive with arrays x and y and, where the split is given, x_test and y_test."""

    path: Path
    archive: Archive
    facts: Facts
    labelled: bool

    def __post_init__(self) -> None:
        if self.facts.test is not None and len(self._parts()) == 2:
            allowed = f"{self.path.name} has an array 'x_test', which says it already"
            raise SettingError("data.test", self.facts.test, allowed, "leave one of them out")
        for name, label in self._parts():
            inputs = self.archive.member(name)
            if inputs.shape[1:] != self.shape:
                raise DataError(f"{self.path}: {name!r} has records of shape {inputs.shape[1:]}, 'x' of {self.shape}")
            if inputs.dtype.kind not in "fiub":
                raise DataError(f"{self.path}: array {name!r} holds {inputs.dtype}; save numbers")
            beside = (self._named(name, given) for given in (self.facts.holder, self.facts.test, self.facts.unit))
            for other in (label, *beside) if self.labelled else ():
                if other is not None and (found := self.archive.member(other).shape[0]) != inputs.shape[0]:
                    raise DataError(f"{self.path}: {inputs.shape[0]} records in {name!r}, {found} in {other!r}")

    @staticmethod
    def _named(part: str, array: str | None) -> str | None:
        """What an array beside x is called; beside x_test it ends as that does."""
        return array if array is None or part == "x" else f"{array}_test"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.archive.member("x").shape[1:]

    @property
    def dtype(self) -> type[np.generic]:
        """Whole numbers of more than a byte, without a range, are token numbers."""
        kind = self.archive.member("x").dtype
        return np.int64 if kind.kind in "iu" and kind.itemsize > 1 and self.facts.range is None else np.float32

    def most_rows(self) -> int:
        return sum(self.archive.member(name).shape[0] for name, _ in self._parts())

    def _parts(self) -> list[tuple[str, str]]:
        label = label_of(self.facts)
        split = self.labelled and "x_test" in self.archive.members
        return [("x", label), ("x_test", f"{label}_test")] if split else [("x", label)]

    def pieces(self) -> Iterator[Piece]:
        facts, parts = self.facts, self._parts()
        for part, (name, label) in enumerate(parts):
            bounds = facts.range or {"u1": (0.0, 255.0), "b1": (0.0, 1.0)}.get(self.archive.member(name).dtype.str[1:])
            y = who = test = person = None
            if self.labelled:
                y = self._targets(label)
                if (holder := self._named(name, facts.holder)) is not None:
                    who = holders(*self._flat(holder), "holder")
                if (unit := self._named(name, facts.unit)) is not None:
                    person = holders(*self._flat(unit), "person")
                if facts.test is not None:
                    test = encode.marks(*self._flat(facts.test))
                elif len(parts) == 2:
                    test = np.full(len(y), part == 1)
            start = 0
            for rows in self.archive.pieces(name):
                end = start + len(rows)
                self._check_finite(rows, name, start)
                x = rows if bounds is None else encode.scaled(rows.astype(np.float64), bounds)
                yield Piece(
                    x,
                    None if y is None else y[start:end],
                    None if who is None else (who[0], who[1][start:end]),
                    None if test is None else test[start:end],
                    None if person is None else (person[0], person[1][start:end]),
                )
                start = end

    def _targets(self, name: str) -> NDArray[Any]:
        """Floating targets without a range are taken as they are, as the inputs are."""
        facts, member = self.facts, self.archive.member(name)
        if facts.classes is not None or facts.target is not None or member.dtype.kind != "f":
            return targets(facts, *self._flat(name))
        values = self.archive.whole(name)
        self._check_finite(values, name, 0)
        return values.astype(np.float32)

    def _flat(self, name: str) -> tuple[pa.Array, Place]:
        values = self.archive.whole(name)
        if values.ndim != 1:
            raise DataError(f"{self.path}: array {name!r} has shape {values.shape}; it needs one value for each record")
        return pa.array(values.astype("U") if values.dtype.kind == "S" else values), Place(str(self.path), name)

    def _check_finite(self, rows: NDArray[Any], name: str, start: int) -> None:
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            row = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(1))[0])
            raise DataError(
                f"{self.path}, row {start + row + 1} of {name!r}: NaN or infinite; fill it in or drop the row"
            )


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images by class: (folder's name, its images)."""

    path: Path
    groups: tuple[tuple[str, tuple[Path, ...]], ...]
    facts: Facts
    labelled: bool
    dtype: type[np.generic] = np.float32

    @property
    def first(self) -> Path:
        return next(path for _, paths in self.groups for path in paths)

    @property
    def shape(self) -> tuple[int, ...]:
        return images.shape_of(self.first)

    def most_rows(self) -> int:
        return sum(len(paths) for _, paths in self.groups)

    def pieces(self) -> Iterator[Piece]:
        names, shape = class_names(self.facts), images.shape_of(self.first)
        if self.facts.unit is not None:
            allowed = "images do not say of whom they are"
            raise SettingError("data.unit", self.facts.unit, allowed, "save an .npz with such an array")
        if self.labelled and not names:
            raise SettingError("data.classes", None, "image folders are named by class: list all of them", "in [data]")
        for name, paths in self.groups:
            if self.labelled and name not in names:
                known = nearest(name, names)
                raise DataError(
                    f"{self.path / name}: a folder that is no class; {known}; rename it or set data.classes"
                )
            for x in images.decoded(list(paths), self.first, shape):
                yield Piece(x, np.full(len(x), names.index(name), np.int64) if self.labelled else None)


Source = TableSource | ArraySource | ImageSource


def targets(facts: Facts, values: pa.Array, place: Place) -> NDArray[Any]:
    """Class numbers, or numbers scaled from the target's range to [−1, 1]; as they are while it is being estimated."""
    if facts.classes is not None:
        return encode.codes(values, class_names(facts), place)
    check_label(facts, place.column)
    got = encode.numbers(values, place)
    if len(bad := np.flatnonzero(np.isnan(got))):
        raise place.error(int(bad[0]), "is empty; fill it in or remove the row")
    bounds = target_range(facts)
    return (got if bounds is None else encode.scaled(got, bounds)).astype(np.float32)


def check_label(facts: Facts, name: str) -> None:
    """Raises unless it is public what may occur in the label."""
    if facts.classes is None and facts.target is None:
        allowed = "what may occur in it has to be public"
        fix = "list the classes in data.classes, or for regression give data.target = [low, high]"
        raise SettingError("data.label", name, allowed, fix)


def label_of(facts: Facts) -> str:
    """What the label is called; in an archive it is y unless another name is given."""
    return facts.label or "y"


def target_range(facts: Facts) -> Range | None:
    """The range that the label was scaled from; None for classes, and before a private one was estimated."""
    if facts.target == PRIVATE:
        return facts.estimate.found.get(label_of(facts)) if facts.estimate else None
    return facts.target if isinstance(facts.target, tuple) else None


def holders(values: pa.Array, place: Place, what: str) -> tuple[list[str], NDArray[np.int64]]:
    """The names there are, and which of them each row has. 7 and 7.0 are one: a person is not to count as two."""
    texts, which = encode.distinct(values, place)
    if len(bad := np.flatnonzero(which < 0)):
        raise place.error(int(bad[0]), f"is empty; every row needs its {what}")
    return [plainest(text) for text in texts], which
