"""NumPy archives (.npz), read array by array and piece by piece; nothing is unpickled.

A size that an archive declares is checked before it is used, and never exceeded while reading.
"""

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import torch
from numpy.lib import format as npy

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.core.trees import Form, Leaf
from fedfdp.data.columns import Range
from fedfdp.data.files import encode
from fedfdp.data.files.cells import Place
from fedfdp.data.files.paths import check_size, damage_named, readable
from fedfdp.data.files.source import Numbers, Piece, label_of, names_in, targets
from fedfdp.data.from_arrays import for_task
from fedfdp.data.schema import Facts, class_names, task_of

_WORD = re.compile("[a-z]+")
PIECE = 1 << 23  # bytes read at once
BOMB = 100  # an archive that unpacks to more than so many times its size …
HARMLESS = 256 * 2**20  # … and to more than this is taken for a bomb
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, NotImplementedError)


@dataclass(frozen=True)
class Member:
    """One array of an archive, as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """A .npz file whose members have been checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with damage_named(path, ".npz archive", _DAMAGE), zipfile.ZipFile(path) as file:
            infos = [info for info in file.infolist() if info.filename.endswith(".npy")]
            names = [info.filename.removesuffix(".npy") for info in infos]
            if len(set(names)) < len(names):
                raise DataError(f"{path}: two arrays have the same name; write it again with numpy.savez")
            declared, packed = sum(info.file_size for info in infos), path.stat().st_size
            check_size(path, declared, "what it unpacks to")
            if declared > max(HARMLESS, BOMB * packed):
                many = f"unpacks from {readable(packed)} to {readable(declared)}"
                raise DataError(f"{path}: {many}: an archive bomb? Write it with numpy.savez, uncompressed")
            self.members = {name: self._header(file, info) for name, info in zip(names, infos, strict=True)}

    def member(self, name: str) -> Member:
        if name not in self.members:
            raise DataError(f"{self.path}: no array {name!r}; {nearest(name, self.members)}")
        return self.members[name]

    def step(self, name: str) -> int:
        """How many rows are read at once."""
        member = self.member(name)
        row = member.dtype.itemsize * math.prod(member.shape[1:])
        return max(1, PIECE // max(1, row)) if not member.fortran else max(1, member.shape[0])

    def pieces(self, name: str, step: int | None = None) -> Iterator[Numbers]:
        """An array's rows, `step` at a time."""
        member = self.member(name)
        row = member.dtype.itemsize * math.prod(member.shape[1:])
        if member.fortran and step is not None:
            whole = next(self.pieces(name))
            yield from (whole[start : start + step] for start in range(0, len(whole), step))
            return
        step = step or self.step(name)
        with (
            damage_named(self.path, ".npz archive", _DAMAGE),
            zipfile.ZipFile(self.path) as file,
            file.open(f"{name}.npy") as stream,
        ):
            _read_header(stream)
            for start in range(0, member.shape[0], max(1, step)):
                count = min(step, member.shape[0] - start)
                data = stream.read(count * row)
                if len(data) < count * row:
                    raise DataError(f"{self.path}: array {name!r} ends in row {start + 1}; copy or write it again")
                shape = (count, *member.shape[1:])
                yield np.frombuffer(data, member.dtype).reshape(shape, order="F" if member.fortran else "C")

    def whole(self, name: str) -> Numbers:
        """All of an array at once: labels, test marks."""
        member = self.member(name)
        return np.concatenate([np.empty((0, *member.shape[1:]), member.dtype), *self.pieces(name)])

    def _header(self, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
        name = info.filename.removesuffix(".npy")
        with file.open(info) as stream:
            shape, fortran, dtype, length = _read_header(stream)
        member = Member(name, shape, dtype, fortran and len(shape) > 1)
        if dtype.hasobject:
            raise DataError(f"{self.path}: array {name!r} holds pickled objects, which are never loaded; save numbers")
        if not shape:
            raise DataError(f"{self.path}: array {name!r} is a single value; records go along its first axis")
        if length + member.size != info.file_size:
            raise DataError(f"{self.path}: array {name!r} is not as long as its header says; copy or write it again")
        return member


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    version = npy.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = npy.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version} of the format")
    return shape, fortran, dtype, stream.tell()


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An archive with arrays x and y, and with x_test and y_test if it gives the split."""

    path: Path
    archive: Archive
    facts: Facts
    labelled: bool

    def __post_init__(self) -> None:
        if self.facts.test is not None and len(self._parts()) == 2:
            allowed = f"{self.path.name} has an array 'x_test', which says it already"
            raise SettingError("data.test", self.facts.test, allowed, "leave one of them out")
        if self.facts.inputs is None and "x" not in self.archive.members and len(self.archive.members) > 1:
            there = ", ".join(name for name in self.archive.members if name != label_of(self.facts))
            raise DataError(f"{self.path}: no array 'x'; name those that the model takes in data.inputs: {there}")
        for end, label in self._parts():
            first = self.archive.member(f"{self._names[0]}{end}")
            beside = [f"{g}{end}" for g in (self.facts.holder, self.facts.test, self.facts.unit) if g is not None]
            for name in self._names:
                inputs, known = self.archive.member(f"{name}{end}"), self.archive.member(name)
                if inputs.shape[1:] != known.shape[1:]:
                    shapes = f"{inputs.name!r} has records of shape {inputs.shape[1:]}, {name!r} of {known.shape[1:]}"
                    raise DataError(f"{self.path}: {shapes}")
                if inputs.dtype.kind not in "fiub":
                    raise DataError(f"{self.path}: array {inputs.name!r} holds {inputs.dtype}; save numbers")
                alike = np.can_cast(self._kind(inputs.name), self._kind(name), "same_kind")
                if not alike or self._bounds(inputs.name) != self._bounds(name):
                    kinds = f"{inputs.name!r} holds {inputs.dtype}, {name!r} {known.dtype}"
                    raise DataError(f"{self.path}: {kinds}; save both in the same type")
                self._check_bytes(inputs)
            others = [f"{name}{end}" for name in self._names[1:]]
            for other in (*others, *((label, *beside) if self.labelled else ())):
                if (found := self.archive.member(other).shape[0]) != first.shape[0]:
                    raise DataError(f"{self.path}: {first.shape[0]} records in {first.name!r}, {found} in {other!r}")

    @property
    def _names(self) -> tuple[str, ...]:
        return self.facts.inputs or ("x",)

    @property
    def inputs(self) -> Form:
        """The inputs by name, where there are several."""
        if self.facts.inputs is None:
            return ()
        return tuple(Leaf(n, self.archive.member(n).shape[1:], np.dtype(self._kind(n)).name) for n in self._names)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.archive.member(self._names[0]).shape[1:]

    @property
    def dtype(self) -> type[np.generic]:
        return self._kind(self._names[0])

    def _kind(self, name: str) -> type[np.generic]:
        """Whole numbers of more than one byte are token numbers, unless they are scaled; of several, a mask is one."""
        kind = self.archive.member(name).dtype
        if kind.kind == "b" and self.facts.inputs is not None:
            return np.bool_
        return np.int64 if kind.kind in "iu" and kind.itemsize > 1 and self._bounds(name) is None else np.float32

    def _bounds(self, name: str) -> Range | None:
        """What an input is scaled from. Of several inputs, token numbers and masks are not: the range is not theirs."""
        kind = self.archive.member(name).dtype
        kept = kind.kind == "b" or (kind.kind in "iu" and kind.itemsize > 1) or (_is_mask(name) and kind != np.uint8)
        if self.facts.inputs is not None and kept:
            return None
        return self.facts.range or {"u1": (0.0, 255.0), "b1": (0.0, 1.0)}.get(kind.str[1:])

    @property
    def bounds(self) -> tuple[Range | None, ...]:
        """What each input is scaled from."""
        return tuple(map(self._bounds, self._names))

    def _check_bytes(self, inputs: Member) -> None:
        """Of several inputs, bytes are scaled where records are images: in other shapes they may be a mask."""
        image, byte = len(inputs.shape) == 4 and not _is_mask(inputs.name), inputs.dtype in (np.uint8, np.int8)
        if self.facts.inputs is not None and byte and not image and self._bounds(inputs.name) is not None:
            fix = "save a mask as bool, token numbers as int64, other values as float32"
            raise DataError(f"{self.path}: array {inputs.name!r} holds {inputs.dtype}, but no images; {fix}")

    def most_rows(self) -> int:
        return sum(self.archive.member(f"{self._names[0]}{end}").shape[0] for end, _ in self._parts())

    def _parts(self) -> list[tuple[str, str]]:
        """What the names of arrays end in, and the label's name: of all records, or of those for training and test."""
        label = label_of(self.facts)
        split = self.labelled and f"{self._names[0]}_test" in self.archive.members
        return [("", label), ("_test", f"{label}_test")] if split else [("", label)]

    def pieces(self) -> Iterator[Piece]:
        facts, parts = self.facts, self._parts()
        for part, (end, label) in enumerate(parts):
            y = who = test = person = None
            if self.labelled:
                y = self._targets(label)
                if facts.holder is not None:
                    who = names_in(*self._flat(f"{facts.holder}{end}"), "holder")
                if facts.unit is not None:
                    person = names_in(*self._flat(f"{facts.unit}{end}"), "person")
                if facts.test is not None:
                    test = encode.marks(*self._flat(facts.test))
                elif len(parts) == 2:
                    test = np.full(len(y), part == 1)
            start = 0
            for x in self._inputs(end):
                stop = start + len(x[0])
                yield Piece(
                    x if facts.inputs else x[0],
                    None if y is None else y[start:stop],
                    None if who is None else (who[0], who[1][start:stop]),
                    None if test is None else test[start:stop],
                    None if person is None else (person[0], person[1][start:stop]),
                )
                start = stop

    def _inputs(self, end: str) -> Iterator[tuple[Numbers, ...]]:
        """Some rows of every input at a time."""
        names = [f"{name}{end}" for name in self._names]
        step, start = min(map(self.archive.step, names)), 0
        for rows in zip(*(self.archive.pieces(name, step) for name in names), strict=True):
            yield tuple(self._scaled(given, name, start) for given, name in zip(rows, names, strict=True))
            start += len(rows[0])

    def _scaled(self, rows: Numbers, name: str, start: int) -> Numbers:
        self._check_finite(rows, name, start)
        self._check_whole(rows, name)
        bounds = self._bounds(name)
        return rows if bounds is None else encode.scaled(rows.astype(np.float64), bounds)

    def _targets(self, name: str) -> Numbers:
        """Floating-point targets without a range are taken as they are, like the inputs."""
        facts, kind, task = self.facts, self.archive.member(name).dtype, task_of(self.facts)
        several = task is not None and task.targets in ("labels", "places")
        if kind.kind == "c":
            raise DataError(f"{self.path}: array {name!r} holds complex numbers; save real ones")
        if not several and (facts.classes is not None or facts.target is not None or kind.kind != "f"):
            return targets(facts, *self._flat(name))
        if kind.kind not in "biuf":
            raise DataError(f"{self.path}: array {name!r} holds {kind}; save numbers")
        values = self.archive.whole(name)
        self._check_finite(values, name, 0)
        self._check_whole(values, name)
        plain = torch.from_numpy(values.astype(np.float64 if kind.kind == "f" else np.int64))
        return for_task(f"{self.path}: array {name!r}", plain, len(class_names(facts)) or None, task).numpy()

    def _flat(self, name: str) -> tuple[pa.Array, Place]:
        values = self.archive.whole(name)
        if values.ndim != 1:
            raise DataError(f"{self.path}: array {name!r} has shape {values.shape}; it needs one value for each record")
        return pa.array(values.astype("U") if values.dtype.kind == "S" else values), Place(str(self.path), name)

    def _check_whole(self, rows: Numbers, name: str) -> None:
        if rows.dtype.kind == "u" and rows.size and int(rows.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{self.path}: array {name!r} holds numbers above {np.iinfo(np.int64).max}; save int64")

    def _check_finite(self, rows: Numbers, name: str, start: int) -> None:
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            row = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(1))[0])
            raise DataError(
                f"{self.path}, row {start + row + 1} of {name!r}: NaN or infinite; fill it in or drop the row"
            )


def _is_mask(name: str) -> bool:
    """By the end of a word of its name, as in attention_mask or padmask2."""
    return any(word.endswith(("mask", "masks")) for word in _WORD.findall(name.lower()))
