"""The runs that are watched, and their newest snapshots: read when somebody looks, once for all who look."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.report.page import embedded
from fedfdp.report.section import Json
from fedfdp.runs.folder import IDENTITY, RunFolder
from fedfdp.runs.store import Store
from fedfdp.watch.alarms import alarms
from fedfdp.watch.snapshot import brief, signature, snapshot

FRESH = 0.3  # seconds for which what was read counts as new
LIST_FRESH = 3.0  # the same for the list of runs below a folder
MOST_LISTED = 200


@dataclass(frozen=True)
class Shown:
    """What viewers are sent; `tag` differs whenever `text` does."""

    tag: str
    text: str


class Board:
    """The run in a folder, or the runs below it. The folder may be made later. Safe for many threads."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.notice = ""  # what is said until there is a run
        self._lock = threading.Lock()
        self._runs: tuple[float, dict[str, RunFolder]] = (0.0, {})
        self._read: dict[str, tuple[tuple[object, ...], Json]] = {}
        self._shown: dict[str | None, tuple[float, Shown]] = {}
        self._count = 0

    def runs(self) -> dict[str, RunFolder]:
        """By name: the path below the folder, or its own name for the run that is the folder itself."""
        at, found = self._runs
        if time.monotonic() - at > LIST_FRESH or not found:
            if (self.place / IDENTITY).is_file():
                found = {self.place.resolve().name: RunFolder(self.place)}
            else:
                found = {str(run.path.relative_to(self.place)): run for run in Store(self.place).runs()}
            self._runs = time.monotonic(), found
        return found

    def find(self, name: str | None) -> tuple[str, RunFolder] | None:
        """The run of this name; without one, a run that is going on, or else the newest."""
        runs = self.runs()
        if name is not None:
            return (name, runs[name]) if name in runs else None
        ranked = sorted(runs.items(), key=lambda pair: (pair[1].running, _touched(pair[1])))
        return ranked[-1] if ranked else None

    def record(self, name: str, folder: RunFolder) -> Json | None:
        """The run's snapshot, read anew where its folder has changed; None where it cannot be read."""
        now, (before, run) = signature(folder), self._read.get(name, ((), {}))
        if now != before:
            with suppress(RunError):  # it may be gone, or damaged
                run = snapshot(folder)
                self._read[name] = now, run
        return run | {"alarms": alarms(run, time.time())} if run else None

    def shown(self, name: str | None) -> Shown:
        """What a viewer of this run is sent."""
        with self._lock:
            at, shown = self._shown.get(name, (0.0, Shown("", "")))
            if time.monotonic() - at < FRESH:
                return shown
            text = embedded(self._state(name))
            if text != shown.text:
                self._count += 1
                shown = Shown(f"{self._count}", text)
            self._shown[name] = time.monotonic(), shown
            return shown

    def records(self) -> list[tuple[str, Json]]:
        """The snapshots of all runs."""
        with self._lock:
            found = [(name, self.record(name, folder)) for name, folder in self.runs().items()]
        return [(name, run) for name, run in found if run is not None]

    def _state(self, name: str | None) -> Json:
        found, runs = self.find(name), self.runs()
        listed = [brief(*pair) for pair in list(runs.items())[:MOST_LISTED]] if len(runs) > 1 else []
        run = self.record(*found) if found else None
        return {"runs": listed, "id": found[0] if found else None, "run": run, "notice": self.notice}


def _touched(folder: RunFolder) -> float:
    try:
        return max(entry.stat().st_mtime for entry in folder.path.iterdir())
    except (OSError, ValueError):
        return 0.0


def parsed(shown: Shown) -> Json:
    """The state as data."""
    state: Json = json.loads(shown.text)
    return state
