"""Kills runs with SIGKILL at random instants and checks that no ledger ever shows less than what was released.

    python scripts/kill_test.py --kills 200

Every run is a process of its own, two at a time; a kill comes at a random instant between the making of its folder and
its last file. What was released is what is on disk when the process is gone: metrics, checkpoint, summary. After each
kill the same run is resumed (and killed again) until it ends; then its model, metrics, ledger and statement must be
those of a run that was never killed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

import fedfdp
from fedfdp.privacy import Event, LedgerBook, epsilon

ROUNDS, EVERY = 240, 6
NAMES = ["north", "east", "south", "west"]
EPSILON, Q, SIGMA, SIGMA_LOSS = 60.0, 0.2, 2.0, 5.0  # priced by Rényi curves, which takes no time
AT_WORK, DONE = "at work", "done"
PATIENCE = 300.0  # seconds after which a run hangs


def run(folder: Path | None, *, resume: bool = False) -> fedfdp.Result:
    """A run of many small rounds; without a folder only a few of them."""
    chance = torch.Generator().manual_seed(0)
    records = {name: (torch.randn(90, 20, generator=chance), torch.arange(90) % 3) for name in NAMES}
    torch.manual_seed(0)
    return fedfdp.train(
        nn.Linear(20, 3),
        fedfdp.Federation.from_clients(records),
        algorithm=fedfdp.FedFDP(lr=1.0),
        privacy=fedfdp.DPSGD(epsilon=EPSILON, sigma=SIGMA, sigma_loss=SIGMA_LOSS, q=Q, clip=0.5, accountant="rdp"),
        threads=1,
        rounds=2 if folder is None else ROUNDS,
        eval_every=EVERY,
        out=folder,
        resume=resume,
    )


class Child:
    """A process that runs, or goes on with, the run in a folder."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, __file__, "--run", str(folder)]
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=alone)
        self._overdue = threading.Timer(PATIENCE, self.process.kill)  # one that hangs is a failure, not a wait
        self._overdue.start()

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said == line, f"the run said {said!r}, not {line!r}"

    def kill(self) -> bool:
        """Whether it was killed; not if it had ended by itself."""
        self.process.send_signal(signal.SIGKILL)
        return self.end() == -signal.SIGKILL

    def end(self) -> int:
        code = self.process.wait()
        assert self._overdue.is_alive(), f"a run hung for {PATIENCE:g} seconds"
        self._overdue.cancel()
        assert code in (0, -signal.SIGKILL), f"a run failed with code {code}"
        return code


def released_rounds(folder: Path) -> tuple[int, int]:
    """The last round of which anything is on disk, and the charges that were seen when that was written."""
    seen = charged = 0
    if (folder / "metrics.jsonl").exists():
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            if line.endswith("}"):
                seen = max(seen, json.loads(line)["round"])
    if (folder / "checkpoint").exists():
        content = (folder / "checkpoint").read_bytes().partition(b"\n")[2]
        length = int.from_bytes(content[:8], "little")
        held = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["record"])
        seen, charged = max(seen, held["state"]["round"]), held["charged"]
    if (folder / "summary.json").exists():
        seen = max(seen, json.loads((folder / "summary.json").read_text())["rounds"])
    return seen, charged


def check(folder: Path) -> int:
    """Raises unless every client's ledger covers every round that left a trace; the number of such rounds."""
    released, seen = released_rounds(folder)
    if not (folder / "ledger.jsonl").exists():
        assert released == 0, "something was released without a ledger"
        return 0
    # opened as a resumed run opens it: a torn last line is repaired, and counted as spent
    header = json.loads((folder / "run.json").read_text())
    book = LedgerBook.open(
        folder / "ledger.jsonl",
        data=header["data"],
        config=header["settings"],
        budgets=dict.fromkeys(NAMES, EPSILON),
        delta=1e-5,
        accountant="rdp",
    )
    with book:
        charged = Counter(entry.client for entry in book.entries())
        owed = epsilon([Event(Q, (SIGMA, SIGMA_LOSS), released)], 1e-5, accountant="rdp") if released else 0.0
        assert book.charged() >= seen, (book.charged(), seen)
        for name in NAMES:
            assert book.ledger(name).epsilon() >= owed, (name, book.ledger(name).epsilon(), owed)
            assert charged[name] >= released, (name, charged[name], released)
    return released


def outcome(folder: Path) -> dict[str, object]:
    """All that an undisturbed run leaves behind, but for the time it took and the day on which it ended."""
    found: dict[str, object] = {
        name: (folder / name).read_bytes() for name in ("model.safetensors", "metrics.jsonl", "ledger.jsonl")
    }
    for name in ("privacy.json", "summary.json"):
        held = json.loads((folder / name).read_text())
        found[name] = {k: v for k, v in held.items() if k not in ("date", "seconds", "evaluation_share")}
    return found


class Trials:
    """So many kills, over as many runs as that takes."""

    def __init__(self, kills: int, seed: int, parent: Path, *, say: bool) -> None:
        self.wanted, self.parent, self.say = kills, parent, say
        self.rng, self.lock = random.Random(seed), threading.Lock()
        self.begun = self.done = self.runs = 0
        run(None)
        start = time.perf_counter()
        run(parent / "whole")
        self.length = time.perf_counter() - start
        self.whole = outcome(parent / "whole")

    def work(self) -> None:
        """One run after the other, each killed until it ends, while kills are wanted."""
        while True:
            with self.lock:
                if self.begun >= self.wanted:
                    return
                folder = self.parent / f"run-{self.runs}"
                self.runs += 1
            while not (folder / "summary.json").exists():
                child = Child(folder)
                with self.lock:
                    more, self.begun = self.begun < self.wanted, self.begun + 1
                if not more:
                    child.wait_for(AT_WORK)
                    child.wait_for(DONE)
                    assert child.end() == 0, "a killed run did not go on"
                    break
                self.interrupt(child, folder)
            found = outcome(folder)
            if other := [name for name, expected in self.whole.items() if found[name] != expected]:
                kept = shutil.copytree(self.parent, tempfile.mkdtemp(prefix="kill-test-"), dirs_exist_ok=True)
                raise AssertionError(f"{folder.name} was resumed and ended with another {', '.join(other)}; see {kept}")

    def interrupt(self, child: Child, folder: Path) -> None:
        """A kill while the run is at work, and a look at what it left."""
        left = 1 - released_rounds(folder)[0] / ROUNDS
        child.wait_for(AT_WORK)
        # Some later than the run can take: it then ends by itself, is compared, and the next one begins.
        time.sleep(self.rng.random() * self.length * max(left, 0.4))
        killed, released = child.kill(), check(folder)
        with self.lock:
            if not killed:
                self.begun -= 1
                return
            self.done += 1
            if self.say:
                print(f"kill {self.done}: {released} rounds had left a trace, the ledgers cover them", flush=True)


def trials(kills: int, seed: int, *, jobs: int = 2, say: bool = False) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as parent, ThreadPoolExecutor(jobs) as pool:
        made = Trials(kills, seed, Path(parent), say=say)
        for done in [pool.submit(made.work) for _ in range(jobs)]:
            done.result()
    return {"kills": made.done, "runs": made.runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        run(None)  # so that all is loaded, and the time that follows is that of a run at work
        print(AT_WORK, flush=True)
        run(options.run, resume=(options.run / "run.json").exists())
        print(DONE, flush=True)
        return
    start = time.perf_counter()
    done = trials(options.kills, options.seed, say=True)
    minutes = (time.perf_counter() - start) / 60
    print(
        f"{done['kills']} kills over {done['runs']} runs in {minutes:.1f} minutes: no ledger showed less than was "
        f"released, and every run ended with the bits of one that was never killed"
    )


if __name__ == "__main__":
    main()
