"""Files that are whole or absent, and locks that end with their process. Knows nothing of what is in the files."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_whole(path: Path, content: bytes, *, sync: bool = True, private: bool = False) -> None:
    """Writes all of the file or nothing of it: written beside, synced unless it may be lost, moved into place.

    `private`: nobody else can read it, not for an instant.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb", opener=privately if private else None) as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def privately(path: str, flags: int) -> int:
    """Opens a file that nobody else can read, if it is new: the `opener` of `open`."""
    return os.open(path, flags, 0o600)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds the lock of this file, which is made if needed; without `wait` a BlockingIOError where another has it."""
    with open(path, "w") as lock:
        if wait:
            fcntl.flock(lock, fcntl.LOCK_EX)
        else:
            _try(lock)
        yield


def held(path: Path) -> bool:
    """Whether a process holds the lock of this file."""
    try:
        with open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once, when the file is closed
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _try(lock: IO[str]) -> None:
    """Takes a lock that nobody holds. `held` has it for an instant when it looks, which is waited for."""
    for patience in (0.0, 0.01, 0.05, 0.1):
        time.sleep(patience)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
