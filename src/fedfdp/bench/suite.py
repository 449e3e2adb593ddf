"""Runs cases and gives a row for each peer: its ratio to the plain one, and its peak memory."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedfdp.bench.cases import Case
from fedfdp.bench.measure import PATIENCE, REFERENCE, Timing, interleaved
from fedfdp.bench.memory import peak
from fedfdp.bench.peers import STEP_PEERS
from fedfdp.core.errors import SettingError, nearest
from fedfdp.native.allocator import tune_allocator

Tell = Callable[[float, float, str], None]  # work done, all work, what is being done
MEMORY_SHARE = 0.5  # how long a peer's memory takes to measure, as a part of how long its time does


@dataclass(frozen=True)
class Row:
    """One peer in one case. `batch` is the records of a step, or those expected in a round over all clients."""

    what: Literal["step", "round"]
    model: str
    batch: int
    clients: int | None
    peer: str
    ratio_to_plain: float | None
    peak_mb: float | None
    seconds: float | None = None
    ratio_low: float | None = None  # quartiles
    ratio_high: float | None = None
    repeats: int = 0
    absent: str | None = None  # why it was not measured


def choose(peers: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The peers to measure (all if none is named; plain always), and those that cannot be: which package is missing."""
    for name in peers:
        if name not in STEP_PEERS:
            raise SettingError("peers", name, nearest(name, STEP_PEERS))
    wanted = [name for name in STEP_PEERS if not peers or name in peers or name == REFERENCE]
    absent = {name: package for name in wanted if (package := STEP_PEERS[name].missing())}
    return [name for name in wanted if name not in absent], absent


def measure(
    cases: Sequence[Case],
    peers: Sequence[str],
    *,
    seconds: float,
    memory: bool = True,
    first: bool = False,
    tell: Tell = lambda done, work, doing: None,
) -> Iterator[Row]:
    """Rows of every case, each as soon as its case is done. `seconds` is about what a peer may take in a case.

    `first`: memory is that of a model's first step, which ours proves, not of those after it.
    """
    tune_allocator()  # for the whole process, so every peer is timed with it
    progress = _Progress(cases, peers, tell, memory=memory)
    for case in cases:
        names = [peer for peer in case.peers if peer in peers]
        absent = {name: text for name in names if (text := _too_large(case, name))}
        peaks: dict[str, float | None] = {}
        if memory:
            for name in names:
                progress.doing(f"{_title(case)}: memory of {name}", done=MEMORY_SHARE)
                peaks[name] = None if name in absent else peak(case, name, first=first)
        progress.doing(f"{_title(case)}: time", done=len(names))
        timings = interleaved({name: case.build(name) for name in names if name not in absent}, seconds=seconds)
        gc.collect()
        for name in names:
            yield _row(case, name, timings.get(name), peaks.get(name), absent.get(name))


class _Progress:
    def __init__(self, cases: Sequence[Case], peers: Sequence[str], tell: Tell, *, memory: bool) -> None:
        self.tell, self.done = tell, 0.0
        self.work = sum(len(set(case.peers) & set(peers)) for case in cases) * (1 + MEMORY_SHARE * memory)

    def doing(self, text: str, *, done: float) -> None:
        self.tell(self.done, self.work, text)
        self.done += done


def _title(case: Case) -> str:
    return f"{case.model}, " + (f"batch {case.batch}" if case.clients is None else f"round of {case.clients} clients")


def _too_large(case: Case, peer: str) -> str | None:
    needs = case.needs(peer)
    return f"would take about {needs / 1e9:.1f} GB" if needs > _available() / 2 else None


def _row(case: Case, peer: str, timing: Timing | None, peak_mb: float | None, absent: str | None) -> Row:
    where = (case.what, case.model, case.batch, case.clients, peer)
    if timing is None:
        return Row(*where, None, peak_mb, absent=absent or f"a step took over {PATIENCE:g} s")
    return Row(
        *where,
        ratio_to_plain=timing.ratio,
        peak_mb=peak_mb,
        seconds=timing.seconds,
        ratio_low=timing.low,
        ratio_high=timing.high,
        repeats=timing.repeats,
    )


def _available() -> float:
    """Bytes of memory that are free to use, as far as the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 8e9
