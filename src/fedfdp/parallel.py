"""Work on several threads of this process, as many as torch may use. What is computed never depends on how many."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TypeVar

import torch

T = TypeVar("T")
_NAME = "fedfdp-"


def for_each(task: Callable[[T], None], items: Sequence[T]) -> None:
    """Does the task for every item, in any order. Within a task it goes on without further threads."""
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or threading.current_thread().name.startswith(_NAME):
        _all_of(task, items)
    else:
        # A share for each thread: handing over every item by itself takes longer than many an item does.
        shares = [items[first::threads] for first in range(min(threads, len(items)))]
        list(_pool(os.getpid(), threads).map(partial(_all_of, task), shares))


def _all_of(task: Callable[[T], None], items: Sequence[T]) -> None:
    for item in items:
        task(item)


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
