"""What a round across machines costs beyond its computation, beside Flower's own floor: real processes over loopback.

    python scripts/flower_overhead.py

Ours: nodes of `fedfdp node` over TLS with keys. Flower's floor: a stock SuperLink and SuperNodes, plain text, whose
ClientApp sends an empty message back. The machine's load average is printed too: with other work on it all times grow.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedfdp.deploy.coordinator import Network, coordinate
from fedfdp.deploy.local import free_port, prepare, start_node, stop
from fedfdp.engines.flower.checks import HEADROOM
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.roster import Roster
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import listening
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch

NODES, ROUNDS = 3, 10
SETTINGS = ["data.source=digits", "data.clients=3", "data.beta=1.0", "model.name=small-cnn", "fused=false", "threads=1"]

STOCK = """
import time
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
client = ClientApp()
@client.train()
def train(message, context):
    return Message(RecordDict(), reply_to=message)
server = ServerApp()
@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < 3:
        time.sleep(0.2)
    for _ in range(4):
        start = time.perf_counter()
        ids = set(grid.push_messages([Message(RecordDict(), n, "train") for n in grid.get_node_ids()]))
        while ids:
            ids -= {m.metadata.reply_to_message_id for m in grid.pull_messages(ids)}
            time.sleep(0.05)
        with open(context.run_config["times"], "a") as file:
            file.write(f"{time.perf_counter() - start}\\n")
"""
PYPROJECT = """
[project]
name = "empty"
version = "1.0.0"
description = ""
license = "MIT"
dependencies = []
[tool.flwr.app]
publisher = "empty"
[tool.flwr.app.components]
serverapp = "stock:server"
clientapp = "stock:client"
[tool.flwr.app.config]
times = ""
"""


def ours(base: Path) -> dict[str, float]:
    config = configs.load("digits", [*SETTINGS, f"rounds={ROUNDS}", f"eval_every={ROUNDS}"]).resolved()
    names = [f"client-{i}" for i in range(NODES)]
    flower = prepare(config, Flower(unsafe_seeded=True), base / "nodes", names)
    nodes = [start_node(base / "nodes" / f"{name}.toml", base / f"{name}.log") for name in names]
    try:
        with listening(flower) as link:
            exchange = Exchange(link.grid, dict(link.node_ids), link.meter)
            Roster(tuple(names), exchange).gather(NODES, 600, say=print)
            empty = []
            for _ in range(20):
                start = time.perf_counter()
                questions = {node: Question("hello", "", "") for node in exchange.ids.values()}
                answers = list(exchange.ask(questions, deadline=60, limit=HEADROOM))
                assert len(answers) == NODES
                empty.append(time.perf_counter() - start)
            across = coordinate(config, flower, Network(link.grid, link.node_ids, link.meter), out=base / "run")
    finally:
        stop(nodes)
    here = launch(config)
    training = [r.summary["seconds"] * (1 - r.summary["evaluation_share"]) / ROUNDS for r in (across, here)]
    seconds, computation = training
    return {"empty message": statistics.median(empty), "round": seconds, "its computation": computation}


def stock(base: Path) -> float:
    app, home, times = base / "app", base / "home", base / "times"
    for folder in (app, home):
        folder.mkdir()
    (app / "pyproject.toml").write_text(PYPROJECT)
    (app / "stock.py").write_text(STOCK)
    port = free_port()
    address = f'address = "127.0.0.1:{port}"'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "l"\n[superlink.l]\n{address}\ninsecure = true\n')
    switches = ("FLWR_DISABLE_UPDATE_CHECK", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    here = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        **dict.fromkeys(switches, "1"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_HOME": str(home),
        "PATH": here + os.pathsep + os.environ["PATH"],
    }

    def start(*command: str) -> subprocess.Popen[bytes]:
        with open(base / "stock.log", "ab") as output:
            return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)

    processes = [start("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port))]
    time.sleep(8)
    for _ in range(NODES):
        own = ["--host", "127.0.0.1", "--port", str(free_port())]
        processes.append(start("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", *own))
    try:
        subprocess.run(["flwr", "run", str(app), "l", "-c", f'times="{times}"'], env=environment, check=True)
        end = time.monotonic() + 400
        while time.monotonic() < end and (not times.exists() or len(times.read_text().splitlines()) < 4):
            time.sleep(1)
        return statistics.median(map(float, times.read_text().splitlines()))
    finally:
        stop(processes)


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        found = {**ours(base), "load before": os.getloadavg()[0]}
        print(json.dumps({name: round(value, 3) for name, value in found.items()}), flush=True)
        print(json.dumps({"Flower's empty message": round(stock(base), 3), "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
