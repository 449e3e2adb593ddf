"""Shared loops: every item is done once whatever the threads are, and nothing that was left undone goes unseen."""

import threading

import numpy as np
import pytest
import torch
from numba import carray

from fedfdp import parallel
from fedfdp.compiled import CALL, DONE, FIRST, ITEMS, TAKEN, matrix, number, one_more, shared, vector
from fedfdp.parallel import for_each
from support import torch_threads


def _add(address):
    """Row i ← row i + by·factor_i"""
    call = carray(address, CALL)
    rows, by, factors = matrix(call, FIRST, np.float32), number(call, FIRST + 3), vector(call, FIRST + 4, np.int64)
    while True:
        item = one_more(address, TAKEN)
        if item >= call[ITEMS]:
            return
        for j in range(rows.shape[1]):
            rows[item, j] += np.float32(by * factors[item])
        one_more(address, DONE)


def _give_up(address):
    call = carray(address, CALL)
    while True:
        item = one_more(address, TAKEN)
        if item >= call[ITEMS]:
            return
        if item != 3:
            one_more(address, DONE)


add = shared(_add, torch.float32, float, torch.int64)


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    with torch_threads(request.param):
        yield request.param


@pytest.fixture(params=["torch's threads", "threads of our own"])
def team(request, monkeypatch):
    if request.param == "threads of our own":
        monkeypatch.setattr(parallel, "_openmp", lambda: None)


@pytest.mark.parametrize("items", [0, 1, 2, 1000])
def test_every_item_is_done_once(threads, team, items):
    rows, factors = torch.ones(items, 300), torch.arange(items)
    add(items, rows, 0.5, factors)
    assert torch.equal(rows, (1 + 0.5 * factors)[:, None].expand(items, 300))


def test_torchs_own_threads_are_found_here():
    assert parallel._openmp() is not None


def test_what_is_left_undone_is_an_error(threads, team):
    with pytest.raises(RuntimeError, match="_give_up: 9 of 10 items were done"):
        shared(_give_up)(10)


@pytest.mark.parametrize("rows", [torch.ones(3, 4).double(), torch.ones(4, 3).T, torch.ones(3, 4, device="meta")])
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
