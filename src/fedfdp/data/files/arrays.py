"""NumPy archives, read member by member and piece by piece; nothing is unpickled.

No size that an archive declares is believed before it was checked, and none is exceeded while reading.
"""

import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedfdp.core.errors import DataError, nearest
from fedfdp.data.files.paths import check_size, readable

PIECE = 1 << 23  # bytes read at once
BOMB = 100  # an archive that unpacks to more than so many times its size …
HARMLESS = 256 * 2**20  # … and to more than this is taken for a bomb


@dataclass(frozen=True)
class Member:
    """One array of an archive: what its header says, compared with what the archive says."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """A .npz file whose members have been checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _Whole(path), zipfile.ZipFile(path) as file:
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

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """An array's rows, some at a time."""
        member = self.member(name)
        row = member.dtype.itemsize * math.prod(member.shape[1:])
        step = max(1, PIECE // max(1, row)) if not member.fortran else member.shape[0]
        with _Whole(self.path), zipfile.ZipFile(self.path) as file, file.open(f"{name}.npy") as stream:
            _read_header(stream)
            for start in range(0, member.shape[0], max(1, step)):
                count = min(step, member.shape[0] - start)
                data = stream.read(count * row)
                if len(data) < count * row:
                    raise DataError(f"{self.path}: array {name!r} ends in row {start + 1}; copy or write it again")
                shape = (count, *member.shape[1:])
                yield np.frombuffer(data, member.dtype).reshape(shape, order="F" if member.fortran else "C")

    def whole(self, name: str) -> NDArray[Any]:
        """A short array: labels, marks."""
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


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    version = npy.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = npy.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version} of the format")
    return shape, fortran, dtype, stream.tell()


class _Whole:
    """Where a damaged archive becomes one line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        wrong = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, NotImplementedError)
        if isinstance(error, wrong) and not isinstance(error, DataError):
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{self.path}: not a whole .npz archive ({reason:.120}); copy or write it again") from None
