"""The content of a file or folder as one SHA-256: equal only for the same bytes under the same names.

Every file is read once; sizes and dates are not trusted. A link that leads out of the folder is refused.
"""

import hashlib
from pathlib import Path

from fedfdp.core.errors import DataError
from fedfdp.data.files.paths import entries, existing

LEVELS = 3  # holder/class/image.png: nothing deeper is read


def content_of(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of all files in a folder except hidden ones."""
    if existing(path).is_file():
        return _digest(path)
    whole = hashlib.sha256()
    for file in _files(path, path, LEVELS):
        whole.update(f"{file.relative_to(path).as_posix()}\0{_digest(file)}\n".encode())
    return whole.hexdigest()


def _files(folder: Path, top: Path, levels: int) -> list[Path]:
    found = []
    for entry in entries(folder, top):
        if entry.is_dir():
            found += _files(entry, top, levels - 1) if levels > 1 else []
        else:
            found.append(entry)
    return found


def _digest(file: Path) -> str:
    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file}: {(error.strerror or 'cannot be read').lower()}; check data.source") from None
