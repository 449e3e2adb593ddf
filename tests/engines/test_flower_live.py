"""How the nodes of a run stand, as the run's folder shows it while the coordinator goes on."""

import threading
from dataclasses import replace

import pytest

from engines.test_flower_rounds import FEDAVG, spoiling, upload
from fedfdp.core.errors import RunError
from fedfdp.engines.flower.messages import pack
from fedfdp.engines.flower.policy import Policy
from fedfdp.runs import live
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.live import Stopped
from fedfdp.watch.snapshot import snapshot


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(live, "EVERY", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def standing(folder):
    return {name: (one["state"], one["why"], one["round"]) for name, one in folder.live()["standing"].items()}


def test_a_late_node_a_wrong_one_and_one_that_is_here(deployment, folder):
    dep, seen = deployment(*FEDAVG, deadline=0.3), {}
    wrong = upload(lambda u: replace(u, records=10**9))

    def tamper(node, message, reply):
        reply = spoiling("client-1", lambda answer: None)(node, message, reply)
        return reply and spoiling("client-2", wrong, rounds=(1, 2))(node, message, reply)

    dep.grid.tamper = tamper
    dep.settings = replace(dep.settings, quorum=1)
    dep.run(out=folder.path, on_update=lambda update: seen.update({update.step.round: standing(folder)}))
    assert seen[1] == {f"client-{i}": ("here", "", 1) for i in range(3)}
    assert seen[2]["client-0"] == ("here", "", 2)
    assert seen[2]["client-1"] == ("late", "no answer within 0.3 seconds", 2)
    assert seen[2]["client-2"][::2] == ("left out", 2)
    assert "an upload of 1000000000 records" in seen[2]["client-2"][1]
    assert seen[3]["client-1"] == ("here", "", 3)
    run = snapshot(folder)
    assert (run["state"], run["quorum"], run["elsewhere"]) == ("finished", 1, True)
    assert [one["state"] for one in run["standing"]] == ["here", "here", "left out"]


def test_a_refusal_is_shown_with_its_reason_and_ledgers_beside_the_nodes_own_budgets(deployment, folder):
    dep = deployment(*FEDAVG, policy=Policy(epsilon=5.0, max_q=0.2, evaluate=True, unsafe_seeded=True))
    dep.run(out=folder.path)
    run = snapshot(folder)
    assert run["spent"]["budget"] == [5.0] * 3  # the nodes' policy; the run would allow 8
    assert all(0 < used < 5.0 for used in run["spent"]["epsilon"])
    stern = deployment(*FEDAVG, policy=Policy(epsilon=8.0, max_q=0.2, min_sigma=50.0, unsafe_seeded=True))
    with pytest.raises(RunError, match="round 1 was refused"):
        stern.run(out=folder.path.with_name("refused"))
    said = RunFolder(folder.path.with_name("refused"))
    assert said.live()["state"] == "failed"
    assert said.live()["why"].startswith("round 1 was refused (client-0: policy.min_sigma")
    assert {state for state, _, _ in standing(said).values()} == {"refused"}
    assert all(why.startswith("policy.min_sigma does not allow") for _, why, _ in standing(said).values())


def test_a_node_that_has_nothing_left(deployment, folder):
    dep = deployment(*FEDAVG)

    def broke(answer):
        return pack(replace(answer, status="unable", reason="its budget is spent"))

    dep.grid.tamper = spoiling("client-1", broke, rounds=(1, 2))
    dep.run(out=folder.path)
    assert standing(folder)["client-1"] == ("out of budget", "its budget is spent", 3)


def test_while_it_waits_for_nodes_a_coordinator_says_who_is_missing_and_ends_when_asked(deployment, folder):
    dep = deployment(*FEDAVG, "rounds=5", quorum=3, wait=60.0)

    def gone(update):
        if update.step.round == 2:
            dep.grid.nodes.pop(102)
            threading.Thread(target=ask_when_waiting, daemon=True).start()

    seen = []

    def ask_when_waiting():
        while not seen:
            if standing(folder)["client-2"][0] == "missing":
                seen.append(standing(folder)["client-2"])
                folder.ask_to_stop()

    with pytest.raises(Stopped):
        dep.run(out=folder.path, on_update=gone)
    assert seen == [("missing", "it is not connected", 2)]
    assert (folder.live()["state"], folder.live()["round"]) == ("stopped", 2)
    dep.grid.nodes[102] = dep.nodes[102]
    result = dep.run(out=folder.path, resume=True)
    assert result.summary["rounds"] == 5
    assert len(list(dep.nodes[102].ledger.entries())) == 5  # no round was paid for twice
