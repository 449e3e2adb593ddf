"""Work on several threads of this process, as many as torch may use. Results never depend on how many there are."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import TypeVar

import torch

from fedfdp.core.errors import SettingError

T = TypeVar("T")
_NAME = "fedfdp-"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_here() -> int:
    """How many threads the caller may use, itself included: one, if the caller is a thread of this module."""
    return 1 if threading.current_thread().name.startswith(_NAME) else torch.get_num_threads()


def on_all_threads(function: int, argument: int, *, alone: bool, owners: object) -> None:
    """Calls the compiled function at that address with that argument: once on every thread, or on this one if `alone`.

    The threads are torch's own if OpenMP can be found: after a pass torch's threads keep their cores busy for a while,
    waiting for work. `owners` hold the memory that the function uses: it may still be running after an interrupt.
    """
    threads, call = threads_here(), _Compiled(function)

    def work(_: int, owned: object = owners) -> None:
        call(argument)

    if alone or threads < 2:
        call(argument)
    elif enter := _openmp(os.getpid()):
        enter(function, argument, threads, 0)
    else:
        for_each(work, range(threads))


def forked() -> bool:
    """Whether this process is a fork of the one that loaded torch: torch's threads do not exist here."""
    return os.getpid() != _STARTED


def allowed_threads(threads: int | None) -> int | None:
    """The number that was asked for; a SettingError in a forked process, which has one thread."""
    if forked() and threads is not None and threads > 1:
        fix = "leave it out, or start the process anew (spawn, subprocess) instead of forking it"
        raise SettingError("threads", threads, "a forked process has one: torch's threads do not survive a fork", fix)
    return threads


_Compiled = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_STARTED = os.getpid()
# A forked child has none of torch's threads, and torch would wait for them for ever. With one thread it uses no others.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


@cache
def _openmp(process: int) -> Callable[[int, int, int, int], None] | None:
    """The function by which code that was compiled with OpenMP enters a parallel region: the one that torch uses."""
    if process != _STARTED:
        return None  # its threads do not survive a fork, and it would wait for them for ever
    try:
        enter = ctypes.CDLL(None).GOMP_parallel
    except (OSError, TypeError, AttributeError):  # another system, or a torch that was built without OpenMP
        return None
    enter.restype, enter.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    return enter


def for_each(task: Callable[[T], None], items: Sequence[T]) -> None:
    """Does the task for every item, in any order. A call within a task uses no further threads.

    The calling thread works too. Each thread takes the next item when it has finished one, because torch's threads keep
    cores busy for a while after their use, so that some of ours are slower.
    """
    threads = min(threads_here(), len(items))
    left = iter(items)  # next() is one step of the interpreter: no two threads get the same item
    if threads < 2:
        _all_of(task, left)
        return
    helpers = [_pool(os.getpid(), threads - 1).submit(_all_of, task, left) for _ in range(threads - 1)]
    try:
        _all_of(task, left)
    finally:
        for helper in helpers:
            helper.exception()  # waits
    for helper in helpers:
        helper.result()


def ahead(task: Callable[[T], None], items: Sequence[T]) -> Iterator[T]:
    """Yields every item in order when its task is done, while other threads work on the items after it."""
    if threads_here() < 2 or len(items) < 2:
        for item in items:
            task(item)
            yield item
        return
    pool = _pool(os.getpid(), torch.get_num_threads() - 1)
    started = [pool.submit(task, item) for item in items]
    try:
        for item, done in zip(items, started, strict=True):
            done.result()
            yield item
    finally:
        for done in started:
            done.cancel()


def _all_of(task: Callable[[T], None], items: Iterable[T]) -> None:
    for item in items:
        task(item)


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool per process, because threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
