"""A run as its folder shows it: states, time left, spending, and alarms."""

import pytest

from fedfdp.runs.folder import RunFolder
from fedfdp.watch.alarms import alarms
from fedfdp.watch.snapshot import MOST_VALUES, signature, snapshot, state_of


def test_states(write_run, say, at_work):
    path = write_run(finished=False)
    folder = RunFolder(path)
    assert state_of(folder, {}) == "not running"  # made before live.json was kept
    assert state_of(folder, {"state": "running"}) == "lost"
    for said in ("stopped", "interrupted", "failed"):
        assert state_of(folder, {"state": said}) == said
    assert state_of(folder, {"state": "<b>"}) == "not running"
    end = at_work(path)
    assert state_of(folder, {"state": "stopped"}) == "running"  # it was resumed
    folder.ask_to_stop()
    assert state_of(folder, {"state": "running"}) == "stopping"
    end()
    assert state_of(RunFolder(write_run("done")), {"state": "running"}) == "finished"
    path = write_run("diverged")
    say(path, state="diverged", why="the run diverged: try a tenth of it")
    run = snapshot(RunFolder(path))
    assert (run["state"], run["resume"]) == ("diverged", None)
    assert alarms(run, 0.0) == [{"kind": "divergence", "text": "the run diverged: try a tenth of it"}]


def test_progress_and_time_left(write_run, say, at_work):
    path = write_run(finished=False, rounds=(2, 4))
    say(path, round=5, rounds=30, pace=2.5)
    run = snapshot(RunFolder(path))
    assert (run["state"], run["round"], run["left"]) == ("lost", 5, None)
    assert run["resume"] == f"fedfdp run --resume {path}"
    at_work(path)
    run = snapshot(RunFolder(path))
    assert (run["state"], run["round"], run["rounds"], run["left"]) == ("running", 5, 30, 2.5 * 25)
    assert run["resume"] is None
    assert run["history"]["round"] == [2, 4]


def test_what_each_client_has_spent(write_run, say):
    path = write_run(finished=False)
    say(path, spent={"epsilon": [1.0, 2.0, 3.0, 0.5], "budget": [3.5, 3.5, 3.5, None]})
    assert snapshot(RunFolder(path))["spent"] == {"epsilon": [1.0, 2.0, 3.0, 0.5], "budget": [3.5, 3.5, 3.5, None]}
    said = snapshot(RunFolder(write_run("old")))["spent"]  # no live.json: from the statement
    assert said == {"epsilon": [0.8571428571428571] * 4, "budget": [3.5] * 4}
    assert snapshot(RunFolder(write_run("open", private=False)))["spent"] is None


def test_damage_is_passed_over_and_changes_are_seen(write_run, say, at_work):
    path = write_run(finished=False)
    (path / "live.json").write_text("{torn")
    assert snapshot(RunFolder(path))["state"] == "not running"
    seen = [signature(RunFolder(path))]
    say(path)
    seen.append(signature(RunFolder(path)))
    at_work(path)
    seen.append(signature(RunFolder(path)))
    RunFolder(path).ask_to_stop()
    seen.append(signature(RunFolder(path)))
    assert len(set(seen)) == 4


def test_of_very_many_clients_only_the_last_evaluation_is_sent(write_run):
    names = [f"c{i}" for i in range(300)]
    rounds = tuple(range(1, 81))
    assert len(names) * len(rounds) > MOST_VALUES
    clients = snapshot(RunFolder(write_run(names=names, rounds=rounds)))["clients"]
    assert clients["round"] == [80]
    assert (len(clients["loss"]), len(clients["loss"][0])) == (1, 300)
    assert (len(clients["names"]), len(clients["train"]), len(clients["classes"])) == (300, 300, 300)


def shown(**changes):
    """A run as the page has it, with nothing to be alarmed about."""
    usual = {
        "state": "running", "why": "", "round": 50, "rounds": 100, "pace": 1.0, "written": 1000.0, "quorum": None,
        "standing": None, "spent": None, "history": {"loss": [2.0, 1.0]}, "clients": {"names": ["a", "b", "c"]},
    }  # fmt: skip
    return usual | changes


def kinds(now=1001.0, **changes):
    return [alarm["kind"] for alarm in alarms(shown(**changes), now)]


def test_a_run_that_goes_well_has_no_alarm():
    assert kinds() == []
    assert kinds(spent={"epsilon": [0.5, 0.6, 0.7], "budget": [1.0, 1.0, 1.0]}) == []
    # ε grows about as √rounds: 95 % of the budget at 91 % of the rounds is as planned.
    assert kinds(round=91, spent={"epsilon": [0.95], "budget": [1.0]}, clients={"names": ["a"]}) == []


@pytest.mark.parametrize("losses", [[2.0, 1.0, None], [1.0, 0.5, 1.01]], ids=["not a number", "grown twofold"])
def test_divergence(losses):
    assert kinds(history={"loss": losses}) == ["divergence"]


def test_losses_that_were_never_known_are_no_divergence():
    assert kinds(history={"loss": [None, None]}) == []
    assert kinds(history={"loss": [1.0, 0.5, 0.99]}) == []


def test_budgets_that_will_not_last():
    spent = {"epsilon": [0.95, 0.5, 0.2], "budget": [1.0, 1.0, None]}
    (alarm,) = alarms(shown(spent=spent), 1001.0)
    assert alarm == {"kind": "budget", "text": "the budget is nearly spent, long before the last round: a (95%)"}
    assert kinds(spent=spent, state="finished") == []


def test_nodes_that_are_away():
    here, late = {"state": "here", "why": ""}, {"state": "late", "why": "no answer within 60 seconds"}
    (alarm,) = alarms(shown(standing=[here, late, here], quorum=2), 1001.0)
    assert alarm["text"] == "1 of 3 nodes do not take part: b: no answer within 60 seconds"
    assert kinds(standing=[here, late, late], quorum=2) == ["dropouts", "dropouts"]
    assert kinds(standing=[here, {"state": "out of budget", "why": ""}, here], quorum=2) == ["budget"]
    assert kinds(standing=[here, late, late], state="stopped") == []


def test_ends_and_silence():
    assert kinds(state="lost") == kinds(state="failed") == ["ended"]
    assert kinds(now=1059.0) == []
    assert kinds(now=1061.0) == ["quiet"]
    assert kinds(now=1061.0, pace=10.0) == []  # a round takes 10 s: ten of them are waited for
