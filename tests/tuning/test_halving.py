"""Logistic regression on some digits: a run takes a fraction of a second."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from fedfdp.core.errors import RunError
from fedfdp.runs.build import launch
from fedfdp.runs.folder import RunFolder
from fedfdp.tuning import halving
from fedfdp.tuning.grid import candidates
from fedfdp.tuning.halving import rungs, tune
from fedfdp.tuning.pareto import Outcome

SMALL = ["data.clients=3", "data.fraction=0.2", "data.beta=1.0", "model.name=linear", "rounds=9", "privacy.clip=1.0"]
GRID = {"algorithm.lr": ["0.0001", "0.001", "0.01", "0.5", "0.0002"], "algorithm.server_lam": ["0", "1"]}


@pytest.fixture(scope="module", autouse=True)
def from_the_first_round():
    """So that nine rounds have three rungs, and each setting is one run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halving, "FIRST_RUNG", 1)
        patch.setattr(halving, "SEEDS", 1)
        yield


@pytest.fixture(scope="module")
def tried():
    return candidates("digits", SMALL, GRID, public=None)


@pytest.fixture(scope="module")
def halved(tried, tmp_path_factory):
    root = tmp_path_factory.mktemp("halved")
    heard = []
    return tune(tried, root, jobs=1, on_report=heard.append), heard, root


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [(1, [1]), (2, [2]), (3, [1, 3]), (8, [2, 8]), (9, [1, 3, 9]), (100, [11, 33, 100]), (763, [84, 252, 763])],
)
def test_rungs(rounds, expected):
    assert rungs(rounds) == expected


@pytest.mark.parametrize(
    ("rounds", "expected"), [(1, [1]), (59, [59]), (60, [20, 60]), (179, [59, 179]), (180, [20, 60, 180])]
)
def test_no_setting_is_dropped_before_it_has_begun_to_learn(rounds, expected, monkeypatch):
    monkeypatch.setattr(halving, "FIRST_RUNG", 20)
    assert rungs(rounds) == expected


def test_short_runs_are_judged_by_the_mean_over_seeds_on_the_same_data(monkeypatch):
    monkeypatch.setattr(halving, "SEEDS", 3)
    (one,) = candidates("digits", ["rounds=200", "seed=7", "privacy.epsilon=8"], {"algorithm.lr": ["1"]}, public=None)
    runs = halving._seeded(one.config)
    assert [run.seed for run in runs] == [7, 8, 9]
    assert [run.data.seed for run in runs] == [None, 7, 7]  # None: the run's own
    longer = replace(one.config, rounds=201)
    assert halving._seeded(longer) == [longer]
    came = [Outcome(9, 0.5, 0.1, 0.2), Outcome(9, 0.7, 0.3, 0.4)]
    mean = halving._together(came)
    assert (mean.round, mean.accuracy, mean.psi, mean.worst) == pytest.approx((9, 0.6, 0.2, 0.3))
    assert halving._together([*came, "it failed"]) == "it failed"


def test_the_best_settings_survive(tried, halved):
    tuned, heard, _ = halved
    assert [tuned.outcomes[i].round for i in range(10)].count(1) == 6  # of 10, ⌈10/3⌉ = 4 go on
    assert [tuned.outcomes[i].round for i in range(10)].count(3) == 2  # of 4, 2 go to the end
    assert {tried[i].config.algorithm.lr for i in tuned.finished} == {0.5}  # the only step size that learns anything
    assert [(h.rung, h.asked) for h in heard] == [(1, 10)] * 10 + [(2, 4)] * 4 + [(3, 2)] * 2


def test_a_promoted_run_is_the_run_that_was_never_stopped(tried, halved, tmp_path):
    tuned, _, root = halved
    best = tuned.finished[0]
    whole = launch(replace(tried[best].config, threads=1, eval_every=1), out=tmp_path / "whole")
    assert tuned.outcomes[best] == Outcome.of(whole.history[-1])
    ends = [run for path in root.iterdir() if path.name.startswith("tune-") and (run := RunFolder(path)).finished]
    assert whole.summary["epsilon"] in [run.summary()["epsilon"] for run in ends]  # paid once, not once a rung


def test_interrupted_at_any_rung_it_comes_to_the_same(tried, halved, tmp_path):
    tuned = halved[0]
    for answers in (3, 8):  # 3 in the first rung, then 8 more across the second
        left = answers

        def interrupt(heard):
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tune(tried, tmp_path, jobs=1, on_report=interrupt)
    again = tune(tried, tmp_path, jobs=1)
    assert again == tuned


def test_what_is_done_is_not_done_again(tried, halved, monkeypatch):
    tuned, _, root = halved
    monkeypatch.setattr("fedfdp.runs.store.launch", None)  # anything run now would fail
    assert tune(tried, root, jobs=1) == tuned


@pytest.mark.slow
def test_two_processes_find_what_one_does(tried, halved, tmp_path):
    few = [tried[i] for i in (0, 6, 7)]
    alone, together = (tune(few, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert alone == together


def test_a_run_that_cannot_be_made_is_told_and_left_out(tried, tmp_path):
    broken = replace(tried[0].config, data=replace(tried[0].config.data, clients=100_000))
    few = [replace(tried[0], config=broken), tried[6]]
    tuned = tune(few, tmp_path, jobs=1)
    assert (tuned.finished, list(tuned.failed)) == ((1,), [0])
    assert "clients" in tuned.failed[0]
    with pytest.raises(RunError, match="no setting could be run"):
        tune(few[:1], tmp_path, jobs=1)


def test_another_eta_in_the_same_folder_is_refused_where_it_cannot_be_told(tried, tmp_path):
    tune([tried[6]], tmp_path, jobs=1)
    tuned = tune([tried[6]], tmp_path, eta=2, jobs=1)  # rounds 2 and 4 were never looked at: [2, 4, 9]
    assert tuned.outcomes[0].round == 9


@pytest.mark.slow
def test_killed_with_its_workers_it_goes_on(tried, halved, tmp_path):
    settings = [part for item in SMALL for part in ("--set", item)]
    grid = [part for name, values in GRID.items() for part in ("--grid", f"{name}={','.join(values)}")]
    code = (
        "from fedfdp.cli.main import main; from fedfdp.tuning import halving as h; h.FIRST_RUNG = h.SEEDS = 1; main()"
    )
    command = [sys.executable, "-c", code, "tune", "digits", *settings, *grid]
    process = subprocess.Popen([*command, "--jobs", "2", "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(line.startswith("rung 1/3, 4 of 10") for line in process.stderr)  # reads up to that line
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(2)  # the workers notice within a second
    assert tune(tried, tmp_path, jobs=2) == halved[0]
