"""Real processes over loopback, with TLS and node keys: one in every test run, the others by `make test-slow`."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from fedfdp.deploy import local
from fedfdp.deploy.coordinator import Network, coordinate
from fedfdp.deploy.local import deploy_local, free_port, prepare, start_node, stop
from fedfdp.engines.flower.security import make_node_key
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import listening
from fedfdp.privacy.ledger.journal import head_of
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch

TINY = ["data.source=digits", "data.beta=1.0", "data.fraction=0.3", "model.name=linear", "fused=false", "threads=1"]
PRIVATE = ["privacy.sigma=2.0", "privacy.q=0.1", "privacy.epsilon=8"]
HERE = Path(__file__).parent


def charges(place: Path, name: str) -> list[int]:
    """The rounds a node has paid for, read from its ledger's file."""
    lines = (place / name / "ledger.jsonl").read_text().splitlines()
    assert head_of(place / name / "ledger.jsonl").exists()
    return [json.loads(line)["round"] for line in lines[1:]]


def used(out: Path) -> dict[int, list[str]]:
    return {
        entry["round"]: entry["used"] for entry in map(json.loads, (out / "arrivals.jsonl").read_text().splitlines())
    }


def same_as_local(tmp_path, *method: str) -> None:
    config = configs.load("digits", [*TINY, *PRIVATE, "data.clients=3", "rounds=2", "eval_every=2", *method]).resolved()
    place = tmp_path / "nodes"
    seeded = Flower(unsafe_seeded=True, quorum=3)
    there = deploy_local(config, seeded, out=tmp_path / "run", place=place)
    here = launch(config)
    stored = load_file(tmp_path / "run" / "model.safetensors")
    for name, tensor in here.model.state_dict().items():
        assert torch.equal(tensor, stored[name]), name
    for name in ("epsilon", "accuracy", "worst_accuracy", "records", "clients"):
        assert there.summary[name] == pytest.approx(here.summary[name], abs=1e-12)
    assert all(charges(place, f"client-{i}") == [0, 1] for i in range(3))
    assert "this was a simulation" in (tmp_path / "run" / "privacy.md").read_text()


SCAFFOLD = ("algorithm.name=scaffold", "algorithm.lr=0.5", "algorithm.local_steps=3")


@pytest.mark.parametrize(
    "method",
    [
        (
            "algorithm.name=fedfdp",
            "algorithm.lr=0.5",
            "algorithm.loss_bound=mean",
        ),  # one real deployment in every test run
        pytest.param(("algorithm.name=fedavg", "algorithm.lr=0.5"), marks=pytest.mark.slow),
        pytest.param(SCAFFOLD, marks=pytest.mark.slow),
    ],
    ids=["fedfdp", "fedavg", "scaffold"],
)
def test_three_real_nodes_give_the_same_bits_as_one_process(tmp_path, method):
    same_as_local(tmp_path, *method)


@pytest.mark.slow
def test_a_killed_node_a_slow_one_and_strangers(tmp_path, caplog):
    """5 nodes, 5 rounds: one SIGKILLed in round 2 and back in round 4, another never in time; strangers stay out."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE))
    settings = [*TINY, *PRIVATE, "data.clients=5", "rounds=5", "eval_every=5", "algorithm.lr=0.5"]
    config = configs.load("digits", [*settings, "model.name=slow_model:SlowLinear"]).resolved()
    place, out = tmp_path / "nodes", tmp_path / "run"
    names = [f"client-{i}" for i in range(5)]
    flower = prepare(config, Flower(quorum=3, deadline=20.0, wait=400.0), place, names)
    slow = place / "client-4.toml"
    slow.write_text(slow.read_text().replace("evaluate = true", "evaluate = false"))

    def start(name: str) -> subprocess.Popen[bytes]:
        slow = {"SLOW_SECONDS": "45", "SLOW_LEDGER": str(place / name / "ledger.jsonl")} if name == "client-4" else {}
        environment = {"PYTHONPATH": path, **slow}
        return start_node(place / f"{name}.toml", place / f"{name}.log", environment=environment)

    make_node_key(place / "stranger.key")
    stranger = (place / "client-0.toml").read_text().replace("client-0.key", "stranger.key")
    (place / "stranger.toml").write_text(stranger.replace('folder = "client-0"', 'folder = "stranger"'))
    plain = "\n".join(["plain_text = true", *(line for line in stranger.splitlines() if not line.startswith("key"))])
    (place / "plain.toml").write_text(plain.replace('folder = "client-0"', 'folder = "plain"'))

    nodes = {name: start(name) for name in [*names, "stranger", "plain"]}
    took_part = []

    def on_update(update):
        took_part.append(update.step.took_part)
        if update.step.round == 1:
            os.kill(nodes["client-1"].pid, signal.SIGKILL)
            nodes["client-1"].wait()
        if update.step.round == 3:
            nodes["client-1"] = start("client-1")
            end = time.monotonic() + 300
            while "connected" not in _last_start(place / "client-1.log") and time.monotonic() < end:
                time.sleep(0.2)
            time.sleep(1.0)

    try:
        with listening(flower) as link:
            network = Network(link.grid, link.node_ids, link.meter)
            result = coordinate(config, flower, network, out=out, on_update=on_update)
            assert set(link.node_ids) == set(names)
    finally:
        stop(list(nodes.values()))
        sys.path.remove(str(HERE))

    assert result.summary["rounds"] == 5
    assert 0 <= result.summary["accuracy"] <= 1
    assert result.summary["evaluated_clients"] == 4
    arrived = used(out)
    assert all("client-4" not in names for names in arrived.values())  # never in time …
    assert "client-4 is left out of round 1: no answer within 20 seconds" in caplog.text
    assert charges(place, "client-4")  # … but it computed and paid, and its ledger says so
    rounds_of_1 = [r for r, names in arrived.items() if "client-1" in names]
    assert 0 in rounds_of_1
    assert 1 not in rounds_of_1
    assert 3 in rounds_of_1 or 4 in rounds_of_1
    for name in names:  # no upload was used that is not in its node's ledger
        paid = charges(place, name)
        assert all(r in paid for r, names in arrived.items() if name in names)
    for name in ("client-0", "client-2", "client-3"):
        assert charges(place, name) == [0, 1, 2, 3, 4]
    assert nodes["stranger"].returncode == 2
    assert "does not let 'client-0' in" in (place / "stranger.log").read_text()
    assert "is connected" not in (place / "plain.log").read_text()
    assert not (place / "plain" / "state").exists()
    statement = json.loads((out / "privacy.json").read_text())
    assert not any("simulation" in warning for warning in statement["warnings"])


def _last_start(log: Path) -> str:
    return log.read_text().rpartition("uploaded")[2]


@pytest.mark.slow
def test_a_killed_coordinator_goes_on_and_nobody_pays_twice(tmp_path):
    settings = [*TINY, *PRIVATE, "data.clients=3", "rounds=6", "eval_every=6", "algorithm.lr=0.5"]
    config = configs.load("digits", settings).resolved()
    place, out = tmp_path / "nodes", tmp_path / "run"
    names = [f"client-{i}" for i in range(3)]
    flower = prepare(config, Flower(quorum=3, deadline=60.0, wait=400.0), place, names)
    section = {k: v for k, v in vars(flower).items() if v is not None}
    (place / "server.toml").write_text(tomli_w.dumps({**config.to_dict(), "flower": section}))
    nodes = [start_node(place / f"{name}.toml", place / f"{name}.log") for name in names]
    command = [sys.executable, "-m", "fedfdp", "server", "--config", str(place / "server.toml"), "--json"]
    server = None
    try:
        server = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 400
        while not ((out / "arrivals.jsonl").exists() and len(used(out)) >= 3) and time.monotonic() < end:
            time.sleep(0.02)
        server.kill()
        server.wait()
        assert 3 <= len(used(out)) < 6
        done = subprocess.run([*command, "--resume", str(out)], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    finally:
        stop([*nodes, *([server] if server is not None else [])])
    summary = json.loads(done.stdout)
    assert summary["rounds"] == 6
    assert sorted(used(out)) == list(range(6))
    for name in names:
        assert charges(place, name) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_command_prints_the_summary_alone(tmp_path):
    command = [sys.executable, "-m", "fedfdp", "deploy", "local", "digits", "--nodes", "2", "--json"]
    options = [part for setting in [*TINY, "rounds=1"] for part in ("--set", setting)]
    done = subprocess.run([*command, *options, "--out", str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["clients"], summary["rounds"], summary["engine"]) == (2, 1, "flower")
    here = launch(configs.load("digits", [*TINY, "rounds=1"])).summary
    assert set(summary) - {"engine", "evaluated_clients"} <= set(here)


def test_a_deployment_never_writes_over_another(tmp_path):
    from fedfdp.core.errors import SettingError

    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "ledger").write_text("")
    with pytest.raises(SettingError, match="holds another deployment"):
        prepare(configs.load("digits"), Flower(), tmp_path / "nodes", ["client-0"])


def test_nodes_that_end_at_once_are_not_waited_for(tmp_path, monkeypatch):
    """As where a node's file is wrong: the error names them and their logs, long before `wait` is over."""
    from fedfdp.core.errors import RunError

    config = configs.load("digits", [*TINY, *PRIVATE, "data.clients=3", "rounds=1"]).resolved()

    def ends(*_: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])

    monkeypatch.setattr(local, "start_node", ends)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"too few nodes are left for a round \(client-.* ended: see .*nodes"):
        deploy_local(config, Flower(quorum=2, wait=300.0), out=tmp_path / "run", place=tmp_path / "nodes")
    assert time.monotonic() - began < 30


def test_plain_text_and_certificates(tmp_path):
    from fedfdp.core.errors import SettingError

    flower = replace(Flower(nodes={"a": str(make_node_key(tmp_path / "a"))}), address=f"127.0.0.1:{free_port()}")
    with pytest.raises(SettingError, match=r"flower\.authority = None: needed for TLS"), listening(flower):
        pass
    with listening(replace(flower, plain_text=True)) as link:
        assert link.node_ids == {}
