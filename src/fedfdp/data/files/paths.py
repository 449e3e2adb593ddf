"""Files below a given folder and how much memory they may take.

Never follows a link that leads out of the folder, and allocates nothing before the size was compared with this
machine's memory.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfdp.core.errors import DataError

PARQUET = (".parquet", ".pq")
TEXTS = (".csv", ".tsv", ".psv", ".csv.gz", ".tsv.gz", ".psv.gz")
TABLES = (*TEXTS, *PARQUET)
NAMED_TABLES = (*TABLES, ".txt", ".txt.gz")  # in a folder, a .txt is likely no holder's table
ARRAYS = (".npz",)
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
KINDS = ".csv, .tsv, .psv or .txt (also packed: .csv.gz), .parquet, .npz, or a folder"


def looks_like_path(source: str) -> bool:
    """Whether `data.source` means a file or folder rather than a dataset's name."""
    named = source.lower().endswith(NAMED_TABLES + ARRAYS)
    return any(mark in source for mark in "/\\") or source.startswith(".") or named


def kind_of(path: Path) -> str:
    """How a file's name ends: .csv, or .csv.gz."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix + ".gz" if name.endswith(".gz") else path.suffix.lower()


def stem_of(path: Path) -> str:
    """A file's name without its ending."""
    return path.name[: len(path.name) - len(kind_of(path))]


def existing(path: Path, fix: str = "check data.source") -> Path:
    """The same path, if it is a folder, or a file that can be read and is not empty."""
    try:
        if path.is_dir():
            return path
        size = path.stat().st_size
        if not path.is_file():
            raise DataError(f"{path}: neither a file nor a folder; give {KINDS}")
        with open(path, "rb"):
            pass
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or "cannot be read")
        raise DataError(f"{path}: {reason.lower()}; {fix}") from None
    if size == 0:
        raise DataError(f"{path}: empty (0 bytes); write the file again")
    return path


def inside(folder: Path, path: Path) -> Path:
    """The same path, if it leads to something in the folder."""
    real, top = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if not real.is_relative_to(top):
        raise DataError(f"{path}: leads outside of {folder}, to {real}; put the file itself there")
    return path


def entries(folder: Path, top: Path) -> list[Path]:
    """What a folder holds, sorted by name, without hidden files; links that lead out of `top` are refused."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: {(error.strerror or 'cannot be read').lower()}; check data.source") from None
    return [inside(top, path) for path in found]


def most_bytes() -> int:
    """How much memory one source may take: half of what the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 8 * 2**30


def check_size(file: Path | str, size: int, what: str) -> None:
    """Raises if this many bytes are more than one source may take; to be called before they are allocated."""
    if size > (most := most_bytes()):
        fix = "use a machine with more memory, or fewer rows"
        raise DataError(f"{file}: {what} would take {readable(size)} in memory, at most {readable(most)} fit; {fix}")


def readable(size: float) -> str:
    return f"{size / 2**30:,.1f} GB" if size >= 2**30 else f"{size / 2**20:,.1f} MB"


@contextmanager
def damage_named(path: Path, kind: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turns whatever reading a damaged file raises into one line."""
    try:
        yield
    except errors as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a whole {kind} ({reason:.120}); copy or write it again") from None
