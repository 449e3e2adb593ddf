"""What a run says of itself while it goes on, and how it ends when it is asked to."""

import json

import pytest
import torch

from fedfdp import DPSGD, FedAvg, FedFDP, train
from fedfdp.core import files
from fedfdp.core.errors import DivergedError, RunError
from fedfdp.runs import live
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.live import Stopped

PRIVATE = DPSGD(epsilon=8.0, delta=1e-5, q=0.2, sigma=3.0, clip=0.5)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def run(digits, out, **options):
    return train(model(), digits, algorithm=FedFDP(lr=0.5), privacy=PRIVATE, rounds=6, eval_every=2, out=out, **options)


@pytest.fixture
def _every_round(monkeypatch):
    monkeypatch.setattr(live, "EVERY", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)


@pytest.mark.usefixtures("_every_round")
def test_a_run_says_how_it_goes(digits, tmp_path):
    folder, said = RunFolder(tmp_path / "run"), []

    def look(update):
        assert folder.running
        said.append(folder.live())

    result = run(digits, folder.path, on_update=look)
    assert [(one["state"], one["round"], one["rounds"]) for one in said] == [("running", i, 6) for i in range(6)]
    end = folder.live()
    assert (end["state"], end["round"], end["took_part"]) == ("finished", 6, len(digits.clients))
    assert end["pace"] > 0
    assert end["spent"]["budget"] == [8.0] * len(digits.clients)
    # Everyone took part in every round: all have spent the same, an upper bound of what may be claimed.
    assert len(set(end["spent"]["epsilon"])) == 1
    assert result.summary["epsilon"] <= end["spent"]["epsilon"][0] <= 1.01 * result.summary["epsilon"]
    assert said[3]["spent"]["epsilon"][0] < end["spent"]["epsilon"][0]
    assert not folder.running


def test_asked_to_stop_it_ends_after_its_round_and_goes_on_to_the_same_bits(digits, tmp_path):
    whole = run(digits, tmp_path / "whole")
    folder = RunFolder(tmp_path / "run")

    def stop(update):
        if update.step.round == 3:
            folder.ask_to_stop()

    with pytest.raises(Stopped, match="stopped as asked"):
        run(digits, folder.path, on_update=stop)
    assert (folder.live()["state"], folder.live()["round"]) == ("stopped", 3)
    assert not folder.stop_asked  # it is done
    assert folder.privacy()["rounds"] == 3
    seen = []
    resumed = run(digits, folder.path, resume=True, on_update=lambda update: seen.append(update.step.round))
    assert seen == [4, 5, 6]
    assert folder.live()["state"] == "finished"
    assert resumed.summary["epsilon"] == whole.summary["epsilon"]
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_asked_in_its_last_round_a_run_is_finished(digits, tmp_path):
    folder = RunFolder(tmp_path / "run")
    run(digits, folder.path, on_update=lambda update: update.step.round == 6 and folder.ask_to_stop())
    assert (folder.finished, folder.live()["state"], folder.stop_asked) == (True, "finished", False)


def test_a_wish_of_a_start_that_was_killed_is_forgotten(digits, tmp_path):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(digits, folder.path, on_update=_interrupt)
    assert folder.live()["state"] == "interrupted"
    folder.ask_to_stop()
    run(digits, folder.path, resume=True)
    assert folder.finished


def test_a_run_that_diverged_says_so(digits, tmp_path):
    with pytest.raises(DivergedError):
        train(model(), digits, algorithm=FedAvg(lr=1e6), rounds=3, eval_every=1, out=tmp_path / "run")
    said = RunFolder(tmp_path / "run").live()
    assert said["state"] == "diverged"
    assert said["why"].startswith("the run diverged: ")


@pytest.mark.parametrize(("error", "why"), [(RunError("no room"), "no room"), (ValueError("secret"), "ValueError")])
def test_a_run_that_fails_says_why_without_what_its_code_said(digits, tmp_path, error, why):
    def fail(update):
        raise error

    with pytest.raises(type(error)):
        run(digits, tmp_path / "run", on_update=fail)
    said = RunFolder(tmp_path / "run").live()
    assert (said["state"], said["why"]) == ("failed", why)


def test_without_privacy_or_without_a_folder(digits, tmp_path):
    train(model(), digits, algorithm=FedAvg(lr=0.1), rounds=1, out=tmp_path / "open")
    assert RunFolder(tmp_path / "open").live()["spent"] is None
    train(model(), digits, algorithm=FedAvg(lr=0.1), rounds=1)


def test_writing_takes_little_of_the_run(digits, tmp_path, monkeypatch):
    """Between two evaluations live.json is written at most every half second, however short the rounds are."""
    count = []
    monkeypatch.setattr(RunFolder, "write_live", lambda self, said: count.append(json.dumps(said)))
    train(model(), digits, algorithm=FedAvg(lr=0.1), rounds=40, eval_every=40, out=tmp_path / "run")
    seconds = json.loads(count[-1])["written"] - json.loads(count[0])["written"]
    assert len(count) <= 3 + seconds / live.EVERY


def test_who_looks_whether_a_run_goes_on_does_not_keep_it_from_beginning(tmp_path):
    path = tmp_path / "lock"
    assert not files.held(path)
    with files.locked(path, wait=False):
        assert files.held(path)
        with pytest.raises(BlockingIOError), files.locked(path, wait=False):
            pass
    assert not files.held(path)
    import fcntl
    import threading

    look = open(path)  # noqa: SIM115 (as `held` has it, for longer)
    fcntl.flock(look, fcntl.LOCK_SH)
    threading.Timer(0.03, look.close).start()
    with files.locked(path, wait=False):
        assert files.held(path)


def _interrupt(update):
    if update.step.round == 2:
        raise KeyboardInterrupt
