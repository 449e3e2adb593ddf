"""Work on several threads of this process, as many as torch may use. What is computed never depends on how many."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

T = TypeVar("T")
_NAME = "fedfdp-"


def for_each(task: Callable[[T], None], items: Sequence[T]) -> None:
    """Does the task for every item, in any order. Within a task it goes on without further threads.

    The calling thread works too, and each takes the next item when it is done with one: torch's own threads keep cores
    busy for a while after they were used, so that no two threads of ours are equally fast.
    """
    threads = min(torch.get_num_threads(), len(items))
    left = iter(items)  # to take the next one is a single step of the interpreter: no two threads take the same
    if threads < 2 or threading.current_thread().name.startswith(_NAME):
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
    if torch.get_num_threads() < 2 or len(items) < 2 or threading.current_thread().name.startswith(_NAME):
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
