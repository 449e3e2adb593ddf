"""Shared loops: every item is done once whatever the threads are, and nothing that was left undone goes unseen."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfdp.native import threads as parallel
from fedfdp.native.compiled import Shared, shared
from fedfdp.native.threads import for_each
from support import torch_threads


@shared(rows=(torch.float32, 2), by=float, factors=(torch.int64, 1))
def add(item, rows, by, factors):
    """Row i ← row i + by·factor_i"""
    for j in range(rows.shape[1]):
        rows[item, j] += np.float32(by * factors[item])


def _row(into, first, power, rows, half):
    return np.zeros(rows.shape[1], dtype=np.float64)


@shared(_row, into=(torch.float64, 1), first=int, power=float, rows=(torch.int32, 2), half=(torch.uint8, 1))
def every_kind(item, own, into, first, power, rows, half):
    """into[first + item] ← Σ_j (rows_item,j + half_j)^power, by way of memory that no other thread has"""
    for j in range(len(own)):
        own[j] = (rows[item, j] + half[j]) ** power
    into[first + item] = own.sum()


@shared(values=(torch.float32, 1))
def give_up(item, values):
    if item == 3:
        raise ValueError("three")
    values[item] = item


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
    monkeypatch.setattr(add, "layout", 0)
    rows = torch.zeros(5, 3)
    with pytest.raises(RuntimeError, match="0 of 5 items"):
        add(5, rows, 1.0, torch.ones(5, dtype=torch.int64))
    assert not rows.any()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_left_undone_is_an_error(threads, team):
    values = torch.full((10,), -1.0)
    with pytest.raises(RuntimeError, match=r"give_up: \d of 10 items were done"):
        give_up(10, values)
    assert values[:4].tolist() == [0, 1, 2, -1]


def test_arguments_of_every_kind_are_read_where_they_were_put(threads):
    rows, half = torch.arange(12, dtype=torch.int32).view(4, 3), torch.tensor([0, 1, 200], dtype=torch.uint8)
    into = torch.full((9,), -1.0, dtype=torch.float64)
    every_kind(4, into, 2, 1.5, rows, half)
    sums = [sum((float(rows[i, j]) + float(half[j])) ** 1.5 for j in range(3)) for i in range(4)]
    assert into.tolist() == pytest.approx([-1, -1, *sums, -1, -1, -1], rel=1e-12)


def test_places_are_counted_from_the_declared_kinds():
    # after the layout and three counts: into is an address and a length, …, rows an address and two lengths
    reads = [line.strip() for line in every_kind.source.splitlines() if " = carray(pointer" in line or " a_" in line]
    assert [read for read in reads if read.startswith("a_")] == [
        "a_into = carray(pointer(call[4], np.float64), (call[5], ))",
        "a_first = call[6]",
        "a_power = number(call[7])",
        "a_rows = carray(pointer(call[8], np.int32), (call[9], call[10], ))",
        "a_half = carray(pointer(call[11], np.uint8), (call[12], ))",
    ]
    assert "call = carray(address, (13,))" in every_kind.source


def test_a_body_must_have_the_declared_parameters():
    def body(item, one, other):
        pass

    for kinds in ({"one": int}, {"other": int, "one": int}, {"one": int, "other": int, "more": int}):
        with pytest.raises(TypeError, match="body: parameters"):
            shared(**kinds)(body)
    with pytest.raises(TypeError, match="body: parameters"):
        shared(_row, one=int, other=int)(body)
    with pytest.raises(TypeError, match="_row: parameters"):
        shared(_row, other=int)(body)
    assert isinstance(shared(one=int, other=int)(body), Shared)

    def closed(item, one):
        return body

    with pytest.raises(TypeError, match="closed: a compiled loop cannot see variables"):
        shared(one=int)(closed)


def test_another_declaration_is_another_layout():
    def body(item, one):
        pass

    layouts = {shared(one=kind)(body).layout for kind in (int, float, (torch.float32, 1), (torch.float32, 2))}
    assert len(layouts) == 4


def test_code_is_kept_for_the_next_process(tmp_path):
    command = "import sys, torch; sys.path[:0] = ['tests', 'tests/native']; import test_compiled as t;"
    command += "t.add(2, torch.ones(2, 3), 1.0, torch.ones(2, dtype=torch.int64)); print(t.add.code.cache_hits)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    run = [sys.executable, "-c", command]
    hits = [subprocess.check_output(run, env=environment, cwd=root, text=True) for _ in range(2)]
    assert [line.strip() for line in hits] == ["0", "1"]


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
    with pytest.raises(TypeError, match=r"add: torch\.float"):
        add(3, rows, 1.0, torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="zip"):
        add(3, torch.ones(3, 4), 1.0)


def test_a_number_where_a_tensor_belongs_is_refused_and_the_other_way_round():
    with pytest.raises(TypeError, match=r"add: 3 instead of \(torch.int64, 1\)"):
        add(3, torch.ones(3, 4), 1.0, 3)
    with pytest.raises(TypeError, match=r"every_kind: 2\.0 instead of <class 'int'>"):
        every_kind(3, torch.ones(3).double(), 2.0, 1.0, torch.ones(3, 1).int(), torch.ones(1).byte())


def test_within_a_task_and_on_other_threads_too(threads):
    rows = torch.zeros(20, 50, 300)
    for_each(lambda k: add(50, rows[k], float(k), torch.ones(50, dtype=torch.int64)), range(20))
    assert torch.equal(rows, torch.arange(20.0)[:, None, None].expand(20, 50, 300))
    other = threading.Thread(target=lambda: add(50, rows[0], 7.0, torch.ones(50, dtype=torch.int64)))
    other.start()
    other.join()
    assert (rows[0] == 7).all()
