"""The ClientApp and the ServerApp under a stock SuperLink and SuperNodes, started by `flwr run`."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from fedfdp.deploy.local import free_port, node_settings, stop
from fedfdp.engines.flower.settings import Flower
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch

TINY = ["data.source=digits", "data.beta=1.0", "data.fraction=0.3", "data.clients=2", "model.name=linear"]
PRIVATE = ["privacy.sigma=2.0", "privacy.q=0.1", "privacy.epsilon=8", "rounds=2", "eval_every=2", "algorithm.lr=0.5"]
NAMES = ("client-0", "client-1")
APP = """
[project]
name = "fedfdp-run"
version = "1.0.0"
[tool.flwr.app]
publisher = "fedfdp"
[tool.flwr.app.components]
serverapp = "fedfdp.engines.flower.server_app:app"
clientapp = "fedfdp.engines.flower.client_app:app"
[tool.flwr.app.config]
config = ""
out = ""
resume = false
"""


def write_files(base: Path, port: int) -> configs.Config:
    """What the coordinator and the two holders have on disk, the app's folder, and where flwr finds the SuperLink."""
    config = configs.load("digits", [*TINY, *PRIVATE, "fused=false", "threads=1"]).resolved()
    settings = Flower(nodes=dict.fromkeys(NAMES, ""), unsafe_seeded=True, quorum=2, deadline=300.0, wait=300.0)
    section = {"nodes": {name: f"{name}.pub" for name in NAMES}, "unsafe_seeded": True, "quorum": 2, "deadline": 300.0}
    (base / "data.toml").write_text(tomli_w.dumps(config.to_dict()))
    (base / "run.toml").write_text(tomli_w.dumps({**config.to_dict(), "flower": {**section, "wait": 300.0}}))
    for part, name in enumerate(NAMES):
        node = node_settings(config, settings, f"127.0.0.1:{port}", name, part)
        node["data"]["config"] = "data.toml"
        kept = {key: value for key, value in node.items() if key not in ("key", "certificate")}
        (base / f"{name}.toml").write_text(tomli_w.dumps({**kept, "plain_text": True}))
    (base / "app").mkdir()
    (base / "app" / "pyproject.toml").write_text(APP)
    (base / "home").mkdir()
    link = {"default": "here", "here": {"address": f"127.0.0.1:{port}", "insecure": True}}
    (base / "home" / "config.toml").write_text(tomli_w.dumps({"superlink": link}))
    return config


@pytest.mark.slow
def test_a_stock_flower_runtime_carries_a_whole_run(tmp_path):
    port, bin = free_port(), Path(sys.executable).parent
    config = write_files(tmp_path, port)
    environment = {
        **os.environ,
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
    }
    started = []

    def start(*command: str) -> None:
        with open(tmp_path / f"{len(started)}.log", "wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        started.append(process)

    out = tmp_path / "run"
    try:
        start(str(bin / "flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port))
        for name in NAMES:
            link = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", str(free_port())]
            start(str(bin / "flower-supernode"), *link, "--node-config", f'node="{tmp_path / name}.toml"')
        settings = f'config="{tmp_path / "run.toml"}" out="{out}"'
        asked = [str(bin / "flwr"), "run", str(tmp_path / "app"), "here", "--format", "json", "-c", settings]
        end = time.monotonic() + 60
        while True:
            done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120)
            begun = done.stdout.startswith("{") and json.loads(done.stdout)["success"]  # the exit code is 0 either way
            if begun or time.monotonic() > end:
                break
            time.sleep(1.0)
        assert begun, done.stdout + done.stderr
        end = time.monotonic() + 400
        while not (out / "summary.json").exists() and time.monotonic() < end:
            time.sleep(0.5)
    finally:
        stop(started)
    logs = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert (out / "summary.json").exists(), logs[-4000:]
    summary, here = json.loads((out / "summary.json").read_text()), launch(config)
    assert (summary["rounds"], summary["engine"], summary["evaluated_clients"]) == (2, "flower", 2)
    assert summary["epsilon"] == pytest.approx(here.summary["epsilon"], abs=1e-12)
    stored = load_file(out / "model.safetensors")
    for name, tensor in here.model.state_dict().items():
        assert torch.equal(tensor, stored[name]), name
    for name in NAMES:
        lines = (tmp_path / name / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in lines[1:]] == [0, 1]
