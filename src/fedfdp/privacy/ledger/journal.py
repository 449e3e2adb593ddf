"""An append-only file of JSON lines that knows when it was cut, edited, reordered or opened twice.

Each line carries a checksum over itself and the line before. Beside the file, a head keeps the newest line and is
written first: a line that a crash tore is completed from it, and a file that is shorter than that was cut. The
checksums need no key: they are against accidents and careless hands. Nothing here reads a clock.
"""

import errno
import fcntl
import hashlib
import json
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedfdp.core.errors import DamagedError, RunError, SettingError

VERSION = 1

Line = dict[str, Any]  # what JSON gives

_SEED = "0" * 32
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decoded = json.JSONDecoder().decode
_SUM_LENGTH = len(',"sum":""}\n') + 32
_SLOT = 2**16  # the head has two slots, written in turn, so that a torn one leaves the other; a line fits in a slot


class Journal:
    """Lines on disk. After `open`, exhaust `recover` once, then `append`.

    With sync, a line is on the disk when `append` returns; without, it outlives the process but not the machine, and
    `sync` makes all lines so far durable.
    """

    def __init__(self, path: Path, file: int, head: int, *, sync: bool, reads: bool = False) -> None:
        """`reads`: it was opened for reading alone."""
        self._reads = reads
        self.path, self._file, self._head, self._sync = path, file, head, sync
        self.header: Line = {}  # what the first line holds, once `recover` has begun
        self._lines = 0
        self._sum = _SEED
        self._usable = False
        self._process = os.getpid()
        _open.add(self)

    @classmethod
    def open(cls, path: Path, *, sync: bool) -> "Journal":
        """Takes the file for this process alone. The lock goes with the process, so a crash leaves none behind."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RunError(f"{path}: the ledger cannot be opened ({error.strerror}); check the folder") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head = os.open(head_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except BlockingIOError:
            os.close(file)
            raise RunError(f"{path}: another process is writing this ledger; let it end first") from None
        except OSError as error:
            os.close(file)
            raise RunError(f"{head_of(path)}: cannot be opened ({error.strerror}); check the folder") from error
        if sync:
            _sync_folder(path.parent)
        return cls(path, file, head, sync=sync)

    def recover(
        self, header: Mapping[str, object], beside: Mapping[str, object] = MappingProxyType({})
    ) -> Iterator[Line]:
        """Every entry so far, checked. A line announced in the head file before a crash is completed, and counts.
        Who only reads counts it, and leaves the file as it is.

        A file with another header is refused. A new one gets the header, and what is `beside` it for later openings.
        """
        newest = self._read_head()
        torn = b""
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    torn = line
                    newest = self._read_head() if self._reads else newest  # it may have been announced since then
                    break
                entry = self._accept(line, header)
                if self._lines > 1:
                    yield entry
        if newest is None:
            if self._lines or torn:
                raise self._damaged("its head file is missing or damaged, so lines may be missing")
            self._usable = True
            self.header = {**header, **beside}
            self.append({"ledger": VERSION, **self.header})
            return
        number, line = newest
        if number == self._lines:  # announced, and never or only half written
            entry = self._accept(line, header)
            if not self._reads:
                os.ftruncate(self._file, os.fstat(self._file).st_size - len(torn))
                self._write(line)
            if self._lines > 1:
                yield entry
        elif torn:
            raise self._damaged("its last line is torn and was not announced in the head file")
        elif number > self._lines:
            raise self._damaged(f"it was cut: {self._lines} lines of at least {number} are left")
        elif number == self._lines - 1 and _sum_of(line) != self._sum:
            raise self._damaged("its last line is not the one in the head file")
        self._usable = True

    def append(self, entry: Mapping[str, object]) -> None:
        """On return the line is written, or an error says that this journal can no longer be used."""
        if os.getpid() != self._process:
            raise inherited(self.path, self._process)
        if not self._usable:
            raise RunError(f"{self.path}: the ledger is closed or could not be written; open it again to go on")
        body = _encoded({"n": self._lines, **entry})[:-1].encode()
        digest = _chain(self._sum, body)
        line = body + _tail(digest)
        if len(line) > _SLOT - 128:
            raise SettingError("events", f"{len(line)} bytes", f"one entry takes at most {_SLOT - 128} bytes")
        self._usable = False  # until all of it is written
        try:
            self._announce(line)
            self._write(line)
        except OSError as error:
            raise RunError(f"{self.path}: the ledger cannot be written ({error.strerror})") from error
        self._lines, self._sum, self._usable = self._lines + 1, digest, True

    def entries(self) -> Iterator[Line]:
        """The entries on disk, as they are: `recover` has checked them."""
        with open(self.path, "rb") as file:
            next(file, None)
            for line in file:
                yield json.loads(line)

    def sync(self) -> None:
        if os.getpid() != self._process:
            raise inherited(self.path, self._process)
        os.fsync(self._head)
        os.fsync(self._file)

    def close(self) -> None:
        if self._file < 0:
            return
        if self._usable:
            self.sync()
        self._usable = False
        os.close(self._head)
        os.close(self._file)
        self._file = -1

    def leave(self) -> None:
        """Closes without a word to the disk: after reading, and in a forked child, whose parent keeps file and lock."""
        self._usable = False
        if self._file >= 0:
            os.close(self._head)
            os.close(self._file)
            self._file = -1

    def _accept(self, line: bytes, header: Mapping[str, object]) -> Line:
        """One complete line: it must follow from the one before, and the first must be the header expected."""
        digest = _chain(self._sum, line[:-_SUM_LENGTH])
        if not line.endswith(_tail(digest)):
            where = "line 1" if not self._lines else f"line {self._lines + 1}, or the order of lines,"
            raise self._damaged(f"{where} was changed")
        entry: Line = _decoded(line.decode())
        self._lines, self._sum = self._lines + 1, digest
        if self._lines > 1:
            return entry
        self.header, found = entry, entry.pop("ledger", None)
        if found != VERSION:
            raise RunError(f"{self.path}: a ledger of version {found}; this program reads version {VERSION}")
        for name, value in header.items():
            if entry.get(name) != value:
                raise RunError(
                    f"{self.path}: the ledger of another {name}: {entry.get(name)!r}, not {value!r}; "
                    f"use the ledger that belongs to this {name}"
                )
        return entry

    def _announce(self, line: bytes) -> None:
        record = f"{self._lines} ".encode() + line
        record = hashlib.sha256(record).hexdigest()[:32].encode() + b" " + record
        if os.pwrite(self._head, record, self._lines % 2 * _SLOT) < len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._sync:
            os.fdatasync(self._head)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        if self._sync:
            os.fdatasync(self._file)

    def _read_head(self) -> tuple[int, bytes] | None:
        """The newest line announced, with its number."""
        return _newest([os.pread(self._head, _SLOT, slot * _SLOT) for slot in (0, 1)])

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self.path}: this ledger cannot be trusted: {what}; restore it, or begin a new run")


def announced(path: Path) -> int:
    """The number of the newest line that the head of a journal speaks of; 0 where there is none."""
    content = head_of(path).read_bytes() if head_of(path).is_file() else b""
    newest = _newest([content[:_SLOT], content[_SLOT:]])
    return newest[0] if newest else 0


def _newest(slots: list[bytes]) -> tuple[int, bytes] | None:
    found = []
    for content in slots:
        digest, record = content[:32], content[33 : content.find(b"\n") + 1]
        if record and hashlib.sha256(record).hexdigest()[:32].encode() == digest:
            number, line = record.split(b" ", 1)
            found.append((int(number), line))
    return max(found, default=None)


def sound_lines(content: bytes) -> tuple[list[bytes], str]:
    """The whole lines of a journal's content as far as each follows from the one before; what is wrong with the next.

    A last line that a crash tore is none.
    """
    found: list[bytes] = []
    before = _SEED
    for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
        before = _chain(before, line[:-_SUM_LENGTH])
        if not line.endswith(_tail(before)):
            return found, f"line {len(found) + 1} was changed"
        found.append(line)
    return found, ""


def inherited(what: object, process: int) -> RunError:
    """Why a forked child cannot go on with a ledger: a lock is shared by a fork, and a budget would be spent twice."""
    return RunError(
        f"{what} was opened by process {process} and cannot be used in a fork of it ({os.getpid()}); "
        f"open it, or start the run, in the child itself"
    )


_open: "weakref.WeakSet[Journal]" = weakref.WeakSet()


def _leave_all() -> None:
    for journal in list(_open):
        journal.leave()


os.register_at_fork(after_in_child=_leave_all)


def head_of(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _chain(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()[:32]


def _tail(digest: str) -> bytes:
    """How a line ends."""
    return f',"sum":"{digest}"}}\n'.encode()


def _sum_of(line: bytes) -> str:
    return line[-_SUM_LENGTH:][len(',"sum":"') :][:32].decode()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
