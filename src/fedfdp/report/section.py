"""What a section of the report is: its part of what the page is given, and the script that draws it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from fedfdp.runs.folder import Json, RunFolder
from fedfdp.runs.tracking import flat

__all__ = ["Json", "Section", "StoredRun"]


@dataclass(frozen=True)
class StoredRun:
    """What a run's folder holds, read once for all sections."""

    folder: RunFolder
    settings: Json  # as section.setting: value
    history: list[Json]  # one entry for each evaluation
    summary: Json  # of a run that is not finished: its last evaluation
    privacy: Json | None  # the privacy statement

    @classmethod
    def read(cls, folder: RunFolder) -> "StoredRun":
        """Damaged lines of the history are passed over."""
        history = [e for e in folder.metrics() if isinstance(e, dict) and isinstance(e.get("round"), int)]
        last = history[-1] if history else {}
        summary = folder.summary() if folder.finished else last
        return cls(folder, flat(folder.config()), history, summary, folder.privacy())


def _nothing(run: StoredRun) -> Json:
    return {}


@dataclass(frozen=True)
class Section:
    """One section. Its script says `drawings.NAME = (run) => [elements]`, or `(runs) => …` where it has `of_runs`."""

    name: str  # of its element and of links to it, too
    title: str
    of_run: Callable[[StoredRun], Json] = _nothing  # what it adds to the record of each run
    # Of a section that compares runs, which is drawn once: what it adds to the page, from the records of all runs.
    of_runs: Callable[[list[Json]], Json] | None = None
    script: Traversable | None = None  # None: NAME.js beside the section's module

    def drawing(self) -> str:
        """The text of its script."""
        script = self.script or files("fedfdp.report.sections").joinpath(f"{self.name}.js")
        return script.read_text(encoding="utf-8")
