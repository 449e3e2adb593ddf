"""Work on several threads of this process, as many as torch may use. What is computed never depends on how many."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

T = TypeVar("T")
_NAME = "fedfdp-"


def for_each(task: Callable[[T], None], items: Sequence[T]) -> None:
    """Does the task for every item, in any order. Within a task it goes on without further threads."""
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or threading.current_thread().name.startswith(_NAME):
        for item in items:
            task(item)
    else:
        list(_pool(os.getpid(), threads).map(task, items))


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
