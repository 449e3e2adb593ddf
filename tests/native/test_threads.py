"""Work on several threads: everything is done once, in order where that was asked for, and errors come through."""

import threading
import time

import pytest

from fedfdp.native.threads import ahead, for_each
from support import torch_threads


@pytest.fixture(params=[1, 2, 4])
def threads(request):
    with torch_threads(request.param):
        yield request.param


def test_every_item_is_done_once_on_no_more_threads_than_there_are(threads):
    done, where = [], set()

    def task(item: int) -> None:
        time.sleep(0.001)
        done.append(item)
        where.add(threading.get_ident())

    for_each(task, range(50))
    assert sorted(done) == list(range(50))
    assert len(where) <= threads
    assert threads == 1 or len(where) > 1


def test_items_come_in_order_and_only_when_they_are_done(threads):
    done: list[int] = []

    def task(item: int) -> None:
        time.sleep(0.002 if item % 3 == 0 else 0.0)
        done.append(item)

    for item in ahead(task, range(20)):
        assert item in done
        assert threads > 1 or done[-1] == item
    assert sorted(done) == list(range(20))


def test_others_are_worked_on_meanwhile():
    with torch_threads(2):
        second = threading.Event()
        items = ahead(lambda item: second.set() if item == 1 else None, range(3))
        next(items)
        assert second.wait(5.0)


@pytest.mark.parametrize("run", [for_each, lambda task, items: list(ahead(task, items))])
def test_an_error_comes_through(threads, run):
    def task(item: int) -> None:
        if item == 7:
            raise ValueError("seven")

    with pytest.raises(ValueError, match="seven"):
        run(task, range(20))


def test_within_a_task_no_further_threads_are_used(threads):
    def inner(item: int) -> None:
        pass

    for_each(lambda item: for_each(inner, range(5)), range(8))
    assert list(ahead(lambda item: list(ahead(inner, range(5))), range(8))) == list(range(8))
