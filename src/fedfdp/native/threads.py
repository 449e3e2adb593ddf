"""Work on several threads of this process, as many as torch may use. What is computed never depends on how many."""

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


def threads_here() -> int:
    """How many threads the caller may put to work, itself included: one, if it is such a thread."""
    return 1 if threading.current_thread().name.startswith(_NAME) else torch.get_num_threads()


def on_all_threads(function: int, argument: int, *, alone: bool, owners: object) -> None:
    """Calls the compiled function at that address with that argument, once on every thread, or `alone` on this one.

    The threads are torch's own where they can be had: they wait for work for a while after a pass, and hold on to their
    cores while they do. `owners` own the memory that the function uses: it may be at work still after an interrupt.
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
    """Whether this process is a fork of the one that loaded torch: it has none of its threads."""
    return os.getpid() != _STARTED


def allowed_threads(threads: int | None) -> int | None:
    """The number asked for, unless it is one that a forked child would wait for in vain."""
    if forked() and threads is not None and threads > 1:
        fix = "leave it out, or start the process anew (spawn, subprocess) instead of forking it"
        raise SettingError("threads", threads, "a forked process has one: torch's threads do not survive a fork", fix)
    return threads


_Compiled = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_STARTED = os.getpid()
# Without its threads torch would wait for them for ever in a child; with one thread it asks for no others.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


@cache
def _openmp(process: int) -> Callable[[int, int, int, int], None] | None:
    """What code compiled with OpenMP enters a parallel region by, as torch itself finds it."""
    if process != _STARTED:
        return None  # its threads do not survive a fork, and it would wait for them for ever
    try:
        enter = ctypes.CDLL(None).GOMP_parallel
    except (OSError, TypeError, AttributeError):  # another system, or torch with threads of its own
        return None
    enter.restype, enter.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    return enter


def for_each(task: Callable[[T], None], items: Sequence[T]) -> None:
    """Does the task for every item, in any order. Within a task it goes on without further threads.

    The calling thread works too, and each takes the next item when it is done with one: torch's own threads keep cores
    busy for a while after they were used, so that no two threads of ours are equally fast.
    """
    threads = min(threads_here(), len(items))
    left = iter(items)  # to take the next one is a single step of the interpreter: no two threads take the same
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
    """Every item in order, once the task is done for it; other threads are at work on the next ones meanwhile."""
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
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
