"""docs/deploy.md: its files as they stand there, with its commands, on this machine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedfdp.deploy.coordinator import load
from fedfdp.deploy.local import free_port, start_node, stop
from fedfdp.engines.flower.policy import load_node

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


def block(name: str) -> str:
    """The page's file of that name."""
    (found,) = re.findall(rf"```toml\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    return found


def command(module: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "fedfdp", module, *arguments]
    return subprocess.run(called, capture_output=True, text=True, cwd=cwd, timeout=600)


def write_files(base: Path, port: int) -> None:
    for hospital in ("north", "south"):
        (base / hospital).mkdir()
        node = block("north/node.toml").replace("north", hospital)
        (base / hospital / "node.toml").write_text(node.replace("coordinator.example.org:9092", f"127.0.0.1:{port}"))
    (base / "run.toml").write_text(block("run.toml").replace("0.0.0.0:9092", f"127.0.0.1:{port}"))


def test_the_files_are_valid(tmp_path):
    write_files(tmp_path, 9092)
    config, settings = load(str(tmp_path / "run.toml"))
    config = config.resolved()
    assert config.rounds == 30
    assert list(settings.nodes) == ["north", "south"]
    node = load_node(tmp_path / "south" / "node.toml")
    assert (node.name, node.policy.evaluate, node.policy.epsilon) == ("south", False, 3.0)
    event = config.algorithm.events(None, config.privacy)[0]
    assert event.sigma_effective >= node.policy.min_sigma  # the two files of the page fit each other
    assert config.privacy.q <= node.policy.max_q


@pytest.mark.slow
def test_two_hospitals_and_a_coordinator(tmp_path):
    port = free_port()
    write_files(tmp_path, port)
    made = command("server", "--make-certificates", "tls", "--host", "127.0.0.1", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    rng = np.random.default_rng(0)
    for hospital in ("north", "south"):
        place = tmp_path / hospital
        assert command("node", "--make-key", f"{hospital}.key", cwd=place).returncode == 0
        (place / f"{hospital}.key.pub").rename(tmp_path / f"{hospital}.key.pub")
        (place / "ca.crt").write_bytes((tmp_path / "tls" / "ca.crt").read_bytes())
        x = rng.normal(size=(600, 12)).astype(np.float32)
        np.savez(place / "records.npz", x=x, y=(x[:, 0] + 0.5 * x[:, 1] > 0).astype(np.int64))
    nodes = [start_node(tmp_path / h / "node.toml", tmp_path / f"{h}.log", poll=0.1) for h in ("north", "south")]
    try:
        arguments = ["--config", "run.toml", "--set", "rounds=5", "--out", "runs/first", "--json"]
        done = command("server", *arguments, cwd=tmp_path)
    finally:
        stop(nodes)
    assert done.returncode == 0, done.stderr + (tmp_path / "north.log").read_text()
    summary = json.loads(done.stdout)
    assert (summary["rounds"], summary["accuracy"], summary["evaluated_clients"]) == (5, None, 0)
    assert summary["loss"] is not None
    assert 0 < summary["epsilon"] < 3.0
    for hospital in ("north", "south"):
        lines = (tmp_path / hospital / "state" / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in lines[1:]] == [0, 1, 2, 3, 4]
        assert (tmp_path / hospital / f"{hospital}.key").stat().st_mode & 0o077 == 0
