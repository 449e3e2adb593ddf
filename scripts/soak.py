"""A soak: real nodes and a coordinator over a network that fails, with random kills; then every ledger is compared.

    python scripts/soak.py --out soak                                 (8 nodes, 40 rounds; root, Linux)
    python scripts/soak.py --out soak --nodes 30 --rounds 300 --picture soak.svg

Nodes are killed (SIGKILL) or asked to leave (SIGTERM) at random and start again; the coordinator is killed and resumed;
a third of the nodes is cut off for a while, again and again; packets are late and get lost. Between two mishaps at
least one round is finished, however slow the machine is. Stopped, and started with the same --out again, it goes on.
At the end: the run has all its rounds, every ledger covers every upload that was used and every report, and file
handles and memory, in numbers and in a picture, show whether something grows.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w
from bad_network import COORDINATOR, SERVER, Network, address, inside, namespace, possible

from fedfdp.engines.flower.security import make_certificates, make_node_key
from fedfdp.privacy.ledger.reading import read_ledger

PORT, SAMPLES = 9092, "samples.txt"
POINTS = 300  # of a line in the picture, at most
PRIVACY = {"epsilon": 60.0, "delta": 1e-5, "sigma": 2.0, "q": 0.05, "clip": 0.5, "accountant": "rdp"}


@dataclass
class Process:
    """A node or the coordinator: started again whenever it is gone."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    back: float = 0.0  # not before this time

    def start(self) -> None:
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=alone)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def hit(self, by: signal.Signals) -> None:
        if self.alive:
            assert self.process is not None
            self.process.send_signal(by)

    def measured(self) -> str:
        """A line: when, who, which of its lives, file handles, kilobytes; nothing if it is not there."""
        if not self.alive:
            return ""
        assert self.process is not None
        place = Path(f"/proc/{self.process.pid}")
        with suppress(OSError, StopIteration):
            handles = len(os.listdir(place / "fd"))
            memory = next(line for line in (place / "status").read_text().splitlines() if line.startswith("VmRSS"))
            return f"{time.time():.1f} {self.name} {self.process.pid} {handles} {memory.split()[1]}\n"
        return ""


def prepare(out: Path, nodes: int, rounds: int) -> None:
    """Keys, certificates, records and settings, once."""
    if (out / "run.toml").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    make_certificates(out / "tls", [COORDINATOR])
    chance = np.random.default_rng(0)
    truth = chance.normal(size=20)
    keys = {}
    for number in range(nodes):
        name = f"node{number}"
        x = chance.normal(size=(400, 20)).astype(np.float32)
        np.savez(out / f"{name}.npz", x=x, y=(x @ truth > 0).astype(np.int64))
        keys[name] = make_node_key(out / f"{name}.key").name
        policy = {name: PRIVACY[name] for name in ("epsilon", "delta", "accountant")}
        about = {
            "name": name, "server": f"{COORDINATOR}:{PORT}", "folder": name, "key": f"{name}.key", "threads": 1,
            "certificate": "tls/ca.crt", "data": {"file": f"{name}.npz", "classes": 2},
            "policy": {**policy, "min_sigma": 1.0, "max_q": 0.1},
        }  # fmt: skip
        (out / f"{name}.toml").write_text(tomli_w.dumps(about))
    tls = {"authority": "tls/ca.crt", "certificate": "tls/server.pem", "key": "tls/server.key"}
    flower = {"address": f"{COORDINATOR}:{PORT}", **tls, "quorum": nodes // 2, "deadline": 45.0, "wait": 3600.0}
    run = {
        "name": "soak", "rounds": rounds, "eval_every": rounds, "engine": "flower", "threads": 1,
        "data": {"source": "soak", "clients": nodes}, "model": {"name": "linear"}, "privacy": PRIVACY,
        "algorithm": {"name": "fedavg", "lr": 1.0},
        "flower": {**flower, "register": "nodes.json", "nodes": keys},
    }  # fmt: skip
    (out / "run.toml").write_text(tomli_w.dumps(run))


def finished_rounds(out: Path) -> int:
    arrivals = out / "run" / "arrivals.jsonl"
    lines = arrivals.read_text().splitlines() if arrivals.exists() else []
    return len({json.loads(line)["round"] for line in lines if line.endswith("}")})


class Soak:
    """The processes, the network, and what happens to them."""

    def __init__(self, out: Path, nodes: int, network: Network, pace: float, seed: int) -> None:
        self.out, self.network, self.pace = out, network, pace
        self.chance, self.events = random.Random(seed + int(time.time())), dict.fromkeys(["kill", "leave", "cut"], 0)
        self.events["coordinator"] = 0
        program = [sys.executable, "-m", "fedfdp"]
        self.nodes = [
            Process(f"node{n}", inside(namespace(n), [*program, "node", "--config", str(out / f"node{n}.toml")]),
                    out / f"node{n}.log")
            for n in range(nodes)
        ]  # fmt: skip
        self.server = Process("coordinator", [], out / "coordinator.log")
        self.program, self.healed = program, math.inf
        self.progress = 0  # rounds that were finished when something last happened

    def begin_server(self) -> None:
        begun = (self.out / "run" / "run.json").exists()
        where = ["--resume" if begun else "--out", str(self.out / "run")]
        config = ["--config", str(self.out / "run.toml")]
        self.server.command = inside(SERVER, [*self.program, "server", *config, *where])
        self.server.start()

    def run(self, limit: float) -> bool:
        """Whether the run has ended by itself within so many seconds."""
        end = time.monotonic() + limit
        next_event, next_look = time.monotonic() + 3 * self.pace, 0.0
        self.begin_server()
        while time.monotonic() < end:
            if not self.server.alive and (self.out / "run" / "summary.json").exists():  # also if it was killed then
                return True
            if self.network.broken:
                sys.exit(f"the network is gone ({self.network.broken}): is another soak on this machine?")
            now = time.monotonic()
            for node in self.nodes:
                if not node.alive and now >= node.back:
                    node.start()
            if not self.server.alive and now >= self.server.back:
                self.begin_server()
            if now >= self.healed:
                self.network.cut, self.healed = set(), math.inf
            if now >= next_event and (progress := finished_rounds(self.out)) > self.progress:
                self.event(now)
                self.progress, next_event = progress, now + self.chance.expovariate(1 / self.pace)
            if now >= next_look:
                with open(self.out / SAMPLES, "a") as file:
                    file.writelines(process.measured() for process in (*self.nodes, self.server))
                next_look = now + 2.0
            time.sleep(0.2)
        return False

    def event(self, now: float) -> None:
        """One mishap."""
        what = self.chance.choices(["kill", "leave", "cut", "coordinator"], [4, 2, 2, 2])[0]
        if what == "cut" and self.network.cut:
            return
        self.events[what] += 1
        if what == "coordinator":
            self.server.hit(signal.SIGKILL)
            self.server.back = now + self.chance.uniform(1, 10)
        elif what == "cut":
            third = self.chance.sample(range(len(self.nodes)), len(self.nodes) // 3)
            self.network.cut = {address(n) for n in third}
            self.healed = now + self.chance.uniform(10, 40)
        else:
            node = self.chance.choice(self.nodes)
            node.hit(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            node.back = now + self.chance.uniform(1, 15)

    def stop(self) -> None:
        for process in (*self.nodes, self.server):
            process.hit(signal.SIGTERM)
        for process in (*self.nodes, self.server):
            if process.process is not None:
                try:
                    process.process.wait(60)
                except subprocess.TimeoutExpired:
                    process.process.kill()
                    process.process.wait()


def compare(out: Path, nodes: int) -> dict[str, object]:
    """Raises unless every ledger covers what left its node; what it found otherwise."""
    lines = [json.loads(line) for line in (out / "run" / "arrivals.jsonl").read_text().splitlines() if line]
    used = {f"node{n}": {line["round"] for line in lines if f"node{n}" in line["used"]} for n in range(nodes)}
    extra = 0
    for name, rounds in used.items():
        charged: list[int] = []
        charges = read_ledger(out / name / "ledger.jsonl", lambda entry, charged=charged: charged.append(entry.round))
        assert rounds <= set(charged), f"{name}: uploads of rounds {rounds - set(charged)} were not paid for"
        history = {(q, sigma): count for q, sigma, count in charges.histories.get(name, ())}
        for line in lines:
            for q, sigma, count in line["spent"].get(name, {"history": []})["history"]:
                assert history.get((q, sigma), 0) >= count, f"{name}: its ledger shows less than it reported"
        assert (out / name / "ledger.jsonl").read_bytes().startswith((out / f"{name}.witness").read_bytes())
        extra += len(charged) - len(rounds)
    summary = json.loads((out / "run" / "summary.json").read_text()) if (out / "run" / "summary.json").exists() else {}
    stated = summary.get("epsilon")
    return {"uploads": sum(map(len, used.values())), "paid and not used": extra, "epsilon": stated}


def lives(out: Path) -> dict[str, list[np.ndarray]]:
    """By name, what was measured in each life of a process: seconds since the soak began, handles, megabytes."""
    lines = [line.split() for line in (out / SAMPLES).read_text().splitlines()]
    found: dict[str, dict[str, list[list[float]]]] = {}
    for at, name, life, handles, kilobytes in lines:
        sample = [float(at) - float(lines[0][0]), int(handles), int(kilobytes) / 1024]
        found.setdefault(name, {}).setdefault(life, []).append(sample)
    return {name: [np.array(life) for life in found[name].values()] for name in sorted(found)}


def growth(of_one: list[np.ndarray]) -> dict[str, object] | None:
    """Handles and memory of its longest life without its first third: at first, at the end, and the most."""
    longest = max(of_one, key=lambda life: life[-1, 0] - life[0, 0])
    warm = longest[len(longest) // 3 :]
    if len(warm) < 4:
        return None
    handles, memory = ([round(v) for v in (warm[0, i], warm[-1, i], warm[:, i].max())] for i in (1, 2))
    return {"seconds": round(warm[-1, 0] - warm[0, 0]), "handles": handles, "megabytes": memory}


def drawn(out: Path, file: Path) -> None:
    """Every life of every process as a line: its handles and its memory over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8, 3))
    for column, (axes, what) in enumerate(zip(panels, ("file handles", "MB"), strict=True), start=1):
        for name, of_one in lives(out).items():
            server = name == "coordinator"
            style = {"color": "C3", "zorder": 3} if server else {"color": "C0", "alpha": 0.4}
            for number, life in enumerate(of_one):
                shown = {"coordinator": "coordinator", "node0": "nodes"}.get(name) if not number else None
                some = life[:: 1 + len(life) // POINTS]
                axes.plot(some[:, 0] / 60, some[:, column], linewidth=1.0, label=shown, **style)
        axes.set(xlabel="minutes", ylabel=what, ylim=(0, None))
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--nodes", type=int, default=8)
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--latency", type=float, default=0.2, help="seconds, one way")
    options.add_argument("--loss", type=float, default=0.05)
    options.add_argument("--pace", type=float, default=20.0, help="seconds from one mishap to the next, on average")
    options.add_argument("--limit", type=float, default=36000.0, help="seconds until it stops; it can go on later")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--picture", type=Path, help="handles and memory over time")
    given = options.parse_args()
    if not possible():
        sys.exit("network namespaces and /dev/net/tun are needed: Linux, as root")
    out = given.out.resolve()
    prepare(out, given.nodes, given.rounds)
    network = Network(given.latency, given.loss, given.seed)
    network.start(given.nodes)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stopped, it takes its processes with it
    soak, begun = Soak(out, given.nodes, network, given.pace, given.seed), time.monotonic()
    try:
        done = soak.run(given.limit)
    finally:
        soak.stop()
        network.stop()
    found = {
        "done": done, "rounds": finished_rounds(out), "seconds": round(time.monotonic() - begun),
        "events": soak.events, "packets": {"passed": network.passed, "lost": network.lost},
        **compare(out, given.nodes),
        "growth": {name: grown for name, of_one in lives(out).items() if (grown := growth(of_one)) is not None},
    }  # fmt: skip
    with open(out / "soak.jsonl", "a") as file:
        file.write(json.dumps(found) + "\n")
    if given.picture:
        drawn(out, given.picture)
    print(json.dumps(found, indent=1))
    sys.exit(0 if done and finished_rounds(out) >= given.rounds else 1)


if __name__ == "__main__":
    main()
