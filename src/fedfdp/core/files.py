"""Files that are whole or absent, and locks that end with their process. Knows nothing of what is in the files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Writes all of the file or nothing of it: written beside, synced, moved into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Holds the lock of this file, which is made if needed; without `wait` a BlockingIOError where another has it."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
