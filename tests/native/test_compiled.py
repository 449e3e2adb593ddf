"""Shared loops: every item is done once whatever the threads are, and nothing that was left undone goes unseen."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from numba import carray

from fedfdp.native import threads as parallel
from fedfdp.native.compiled import CALL, DONE, FIRST, TAKEN, items, matrix, number, one_more, shared, vector
from fedfdp.native.threads import for_each
from support import torch_threads


def _add(address):
    """Row i ← row i + by·factor_i"""
    call = carray(address, CALL)
    rows, by, factors = matrix(call, FIRST, np.float32), number(call, FIRST + 3), vector(call, FIRST + 4, np.int64)
    while True:
        item = one_more(address, TAKEN)
        if item >= items(call):
            return
        for j in range(rows.shape[1]):
            rows[item, j] += np.float32(by * factors[item])
        one_more(address, DONE)


def _give_up(address):
    call = carray(address, CALL)
    while True:
        item = one_more(address, TAKEN)
        if item >= items(call):
            return
        if item != 3:
            one_more(address, DONE)


add = shared(_add, (torch.float32, 2), float, (torch.int64, 1))


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    with torch_threads(request.param):
        yield request.param


@pytest.fixture(params=["torch's threads", "threads of our own"])
def team(request, monkeypatch):
    if request.param == "threads of our own":
        monkeypatch.setattr(parallel, "_openmp", lambda process: None)


@pytest.mark.parametrize("items", [0, 1, 2, 1000])
def test_every_item_is_done_once(threads, team, items):
    rows, factors = torch.ones(items, 300), torch.arange(items)
    add(items, rows, 0.5, factors)
    assert torch.equal(rows, (1 + 0.5 * factors)[:, None].expand(items, 300))


def test_torchs_own_threads_are_found_here():
    assert parallel._openmp(os.getpid()) is not None


def test_a_forked_process_has_threads_of_its_own():
    with torch_threads(2):
        rows = torch.zeros(100, 300)
        add(100, rows, 1.0, torch.ones(100, dtype=torch.int64))
        child = os.fork()
        if child == 0:
            add(100, rows, 1.0, torch.ones(100, dtype=torch.int64))
            os._exit(0 if bool((rows == 2).all()) else 1)
        for _ in range(200):
            process, status = os.waitpid(child, os.WNOHANG)
            if process:
                break
            time.sleep(0.05)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert (process, status) == (child, 0)


def test_code_made_for_another_layout_does_nothing(monkeypatch):
    monkeypatch.setattr("fedfdp.native.compiled.VERSION", 0)  # what is compiled has the number of its time
    rows = torch.zeros(5, 3)
    with pytest.raises(RuntimeError, match="0 of 5 items"):
        add(5, rows, 1.0, torch.ones(5, dtype=torch.int64))
    assert not rows.any()


def test_what_is_left_undone_is_an_error(threads, team):
    with pytest.raises(RuntimeError, match="_give_up: 9 of 10 items were done"):
        shared(_give_up)(10)


@pytest.mark.parametrize(
    "rows",
    [
        torch.ones(3, 4).double(),
        torch.ones(4, 3).T,
        torch.ones(3, 4, device="meta"),
        torch.ones(3, 4, 5),
        torch.ones(3),
        torch.ones(3, 4, requires_grad=True),
    ],
)
def test_numbers_of_another_kind_are_refused(rows):
    with pytest.raises(TypeError, match="_add"):
        add(3, rows, 1.0, torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="zip"):
        add(3, torch.ones(3, 4), 1.0)


def test_within_a_task_and_on_other_threads_too(threads):
    rows = torch.zeros(20, 50, 300)
    for_each(lambda k: add(50, rows[k], float(k), torch.ones(50, dtype=torch.int64)), range(20))
    assert torch.equal(rows, torch.arange(20.0)[:, None, None].expand(20, 50, 300))
    other = threading.Thread(target=lambda: add(50, rows[0], 7.0, torch.ones(50, dtype=torch.int64)))
    other.start()
    other.join()
    assert (rows[0] == 7).all()
