"""The data cache: one file per dataset, written whole or not at all, by one process at a time.

It does not trust what it finds: whoever reads a file compares its content with the catalog.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fedfdp.core.errors import DataError
from fedfdp.data.named.entry import Content, Entry, Table
from fedfdp.data.named.layout import Records, Rows


def place(cache: str | Path | None = None) -> Path:
    """The cache folder: the given one, else $FEDFDP_DATA, else ~/.cache/fedfdp."""
    return Path(cache or os.environ.get("FEDFDP_DATA") or "~/.cache/fedfdp").expanduser()


def file(entry: Entry, cache: str | Path | None = None) -> Path:
    """A dataset's file in the cache."""
    return place(cache) / f"{entry.name}{entry.ending}"


def read(path: Path) -> Content:
    """What a cache file holds. Raises a ValueError if it is damaged."""
    if path.suffix == Table.ending:
        return Rows(path.read_bytes())
    try:
        tensors = load_file(path)
        return Records(tensors["x"], tensors["y"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def write(path: Path, content: Content) -> None:
    """Writes beside the target, then renames: a reader sees the old file, the new one, or none."""
    draft = path.with_name(f".{path.stem}-{os.getpid()}.part")
    try:
        with draft.open("wb") as target:
            target.write(content.text if isinstance(content, Rows) else save({"x": content.x, "y": content.y}))
            target.flush()
            os.fsync(target.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


@contextlib.contextmanager
def workplace(path: Path) -> Iterator[Path]:
    """An empty folder beside the cache file, removed afterwards together with what killed processes left there.

    Use it under `alone` only, so that it does not remove the folder of a process that is still at work.
    """
    for left in path.parent.glob(f".{path.stem}-*"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def alone(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time works on this cache file. The lock ends with its process, so it is never stale."""
    with (path.parent / f".{path.stem}.lock").open("a") as lock:
        if sys.platform != "win32":  # there, two may fetch at once; the rename still keeps the file whole
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that is getting {path.stem}")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns the error of a full or unwritable disk into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write to the data cache {folder}: {error.strerror or error}; free some space or choose another "
            "folder with --cache DIR or FEDFDP_DATA=DIR"
        ) from error
