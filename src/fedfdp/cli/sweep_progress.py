"""What a person sees of a sweep, on stderr: a line for each run that is going on, what is done, and the time left."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedfdp.cli.progress import headline
from fedfdp.runs.sweep import RunProgress


class SweepWatcher:
    """Bars on a terminal, a line at the start and the end of each run elsewhere."""

    def __init__(self, total_rounds: dict[str, int]) -> None:
        self.rounds, self.done = dict(total_rounds), dict.fromkeys(total_rounds, 0)
        self.finished, self.computed, self.started = 0, 0, time.monotonic()
        self.first: dict[str, int] = {}  # the round at which each run was first seen: a resumed one does not start at 0
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[seen]}"))
        self.live = console.is_terminal
        self.bars = Progress(*columns, console=console, transient=True, disable=not self.live)
        self.whole = self.bars.add_task("all runs", total=sum(self.rounds.values()), seen="")
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "SweepWatcher":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, progress: RunProgress) -> None:
        name = progress.run
        if progress.state == "running":
            self.first.setdefault(name, progress.round - 1)
            self.done[name] = progress.round
        elif progress.state in ("found", "done", "failed"):
            self.finished += 1
            self.done[name] = self.rounds.get(name, progress.rounds)
            if progress.state == "found":
                self.first[name] = self.done[name]
            elif progress.state == "done":
                self.first.setdefault(name, 0)
        if self.live:
            self._draw(progress)
        elif progress.state in ("started", "done", "failed"):
            print(self._line(progress), file=sys.stderr, flush=True)

    def left(self) -> str:
        """From the rounds per second so far; nothing before any is known."""
        made = sum(self.done[name] - first for name, first in self.first.items() if name in self.done)
        if made <= 0:
            return ""
        rest = sum(self.rounds.values()) - sum(self.done.values())
        minutes, seconds = divmod(round((time.monotonic() - self.started) / made * rest), 60)
        return f"about {minutes}:{seconds:02d} left"

    def _line(self, progress: RunProgress) -> str:
        parts = [
            f"[{self.finished}/{len(self.rounds)}]",
            progress.run,
            progress.message or progress.state,
            headline(progress.measures),
        ]
        if progress.state != "started":
            parts.append(self.left())
        return "  ".join(part for part in parts if part)

    def _draw(self, progress: RunProgress) -> None:
        if progress.state in ("started", "running"):
            if progress.run not in self.tasks:
                self.tasks[progress.run] = self.bars.add_task(progress.run, total=progress.rounds or 1, seen="starting")
            seen = f"round {progress.round}/{progress.rounds}  {headline(progress.measures)}"
            self.bars.update(self.tasks[progress.run], completed=progress.round, seen=seen)
        elif progress.run in self.tasks:
            self.bars.remove_task(self.tasks.pop(progress.run))
        if progress.state in ("done", "failed"):
            self.bars.console.print(self._line(progress), highlight=False, markup=False)
        overall = f"{self.finished}/{len(self.rounds)} runs  {self.left()}"
        self.bars.update(self.whole, completed=sum(self.done.values()), seen=overall)
