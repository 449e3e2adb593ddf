"""A second copy of a node's ledger, outside its folder: by it, an older copy of the folder that was put back is found.

It is longer by every charge before the answer that was paid for leaves. It cannot tell if it was put back as well.
"""

import os
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import DamagedError, RunError, SettingError
from fedfdp.privacy.ledger.journal import sound_lines

MARK = "witnessed"  # a file in the folder: there is a witness, and it must not be missing
_DECLARE = "declare it with: fedfdp node restored NODE.toml"
REBUILD = "begin it again from the second copy with: fedfdp node restored NODE.toml --by-witness"


class Witness:
    """The copy, which follows the ledger line by line."""

    def __init__(self, path: Path, ledger: Path) -> None:
        if path.resolve().is_relative_to(ledger.parent.resolve()):
            allowed = "within the folder, with which it would be put back"
            raise SettingError("witness", str(path), allowed, "keep it elsewhere, on another disk if there is one")
        self.path, self.ledger = path, ledger
        self._followed: int | None = None  # bytes of both that are equal, once that is known

    @property
    def mark(self) -> Path:
        return self.ledger.parent / MARK

    def check(self) -> None:
        """Raises unless the ledger has all that the witness has, and goes on from there by one charge at most.

        A crash can leave the witness one charge behind. One that is shorter was cut, or put back itself.
        """
        if not self.path.exists():
            if self.mark.exists():
                raise RunError(
                    f"{self.path}: the second copy of the ledger is missing. Was the folder moved, or put back from a "
                    f"backup? Move the copy too; if it is lost, {_DECLARE}"
                )
            return
        known, shown = self.lines(), self.ledger.read_bytes() if self.ledger.exists() else b""
        if shown.startswith(known):
            behind = shown.count(b"\n") - known.count(b"\n")
            if self.mark.exists() and (not known or behind > 1):
                what = f"shows {_charges(known)} of {_charges(shown)} charges" if known else "is empty"
                raise RunError(
                    f"{self.path}: the second copy of the ledger {what}: it was cut, or is an older one. Bring the "
                    f"newest one; if it is lost, {_DECLARE}"
                )
            return
        if known.count(b"\n") <= 1 and shown.count(b"\n") <= 1 and not sound_lines(known)[1]:
            self._followed = 0  # nothing was ever charged: whatever ledger is begun, it is followed from its start
            return
        if fault := sound_lines(known)[1]:
            raise RunError(f"{self.path}: the second copy of the ledger is damaged: {fault}; {_DECLARE}")
        if fault := sound_lines(shown)[1]:
            raise DamagedError(f"{self.ledger} is damaged: {fault}; {REBUILD}")
        less = known.startswith(shown)
        what = f"shows {_charges(shown)} of {_charges(known)} charges" if less else "differs from its second copy"
        raise RunError(f"{self.ledger} {what} ({self.path}): an older copy was put back; {_DECLARE}")

    def lines(self) -> bytes:
        """Its whole lines: a crash may have torn the last one."""
        content = self.path.read_bytes() if self.path.exists() else b""
        return content[: content.rfind(b"\n") + 1]

    def lost(self) -> list[bytes]:
        """The charges that only it has: its sound lines after the part that both have in common."""
        known, _ = sound_lines(self.lines())
        shown = self.ledger.read_bytes().splitlines(keepends=True) if self.ledger.exists() else []
        both = zip(shown, known, strict=False)
        common = next((n for n, (one, other) in enumerate(both) if one != other), min(len(shown), len(known)))
        return known[max(common, 1) :]

    def follow(self) -> None:
        """Adds what the ledger has and the witness has not; on the disk when it returns."""
        known = len(self.lines()) if self._followed is None else self._followed
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(descriptor).st_size < known:  # somebody took it away while the node runs
            known = 0
        with open(self.ledger, "rb") as file:
            file.seek(known)
            news = file.read()
        with open(descriptor, "wb") as file:
            file.seek(known)
            file.write(news)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._followed = known + len(news)
        if not self.mark.exists():
            self.mark.write_text(f"{self.path}\n")

    def begin_anew(self) -> None:
        """Becomes a copy of the ledger as it is: only after its owner has declared what happened."""
        files.write_whole(self.path, self.ledger.read_bytes(), private=True)
        self._followed = None
        self.follow()


def _charges(lines: bytes) -> int:
    return max(lines.count(b"\n") - 1, 0)
