"""Peak resident memory of a peer's step, above what was resident before it, each measured in a process of its own.

An allocator keeps what earlier steps have freed, so in a process that has run another peer the number means nothing.
"""

import multiprocessing
import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

import torch

from fedfdp.bench.cases import Case
from fedfdp.native.allocator import give_back

STEPS = 2  # the second begins with what the first left behind
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak(case: Case, peer: str, *, first: bool = False) -> float | None:
    """In MB; None where the system does not say, or ended the process because memory ran out.

    `first`: of a model's first step, in which ours proves the pass; else of those after it.
    """
    with ProcessPoolExecutor(1, mp_context=_context(), max_tasks_per_child=1) as executor:
        try:
            return executor.submit(peak_here, case, peer, torch.get_num_threads(), first=first).result()
        except BrokenProcessPool:
            return None


@cache
def _context() -> BaseContext:
    """How new processes are made: forked from a server that has imported everything and computed nothing."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "opacus"])
    return context


def peak_here(case: Case, peer: str, threads: int, *, first: bool = False) -> float | None:
    """The peak of this process, in MB. Only the first call in a process means anything."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")  # what other libraries say of themselves
    small = case.small().build(peer)  # loads code and starts threads, which are not the step's memory
    small.prepare()
    small.step()
    runner = case.build(peer)
    runner.prepare()
    if not first:
        runner.step()
        runner.prepare()
    give_back()  # what earlier steps have freed would be used again, unseen
    before = _reset()
    for _ in range(1 if first else STEPS):
        runner.step()
        runner.prepare()
    after = _peak()
    return None if before is None or after is None else max(0.0, after - before)


def _reset() -> float | None:
    """Resets the system's record of the peak. Gives the memory in use now, in MB, or the peak if it cannot be reset."""
    try:
        _RESET.write_text("5")
        return _status("VmRSS")
    except OSError:
        return _peak()


def _peak() -> float | None:
    try:
        return _status("VmHWM")
    except OSError:
        return _usage()


def _status(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} has no {name}")
    return int(found[1]) / 1024


def _usage() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
