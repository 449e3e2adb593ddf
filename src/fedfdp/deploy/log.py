"""A node's log: rotated, and for its owner's eyes only, since the text of an error may quote records."""

from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from fedfdp.core.files import privately

LOG_BYTES, LOG_FILES = 10 * 2**20, 5  # node.log, and so many older ones of this size


class PrivateLog(RotatingFileHandler):
    """A log file, and its older ones, that only their owner can read."""

    def __init__(self, path: Path) -> None:
        for made in path.parent.glob(f"{path.name}*"):  # by an earlier version, which left them to the umask
            with suppress(PermissionError):  # packed by another user's log rotation
                made.chmod(0o600)
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        """Also after every rotation; an older file keeps the mode that it was made with."""
        return open(self.baseFilename, "a", encoding="utf-8", opener=privately)
