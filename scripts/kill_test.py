"""Kills a run with SIGKILL at random instants and checks that no ledger ever shows less than what was released.

    python scripts/kill_test.py --kills 200

What was released is what is on disk when the process is gone: metrics, checkpoint, model. After each kill the same run
is resumed (and killed again) until it ends; then it must have the bits of a run that was never killed.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import nn

import fedfdp
from fedfdp.data import load
from fedfdp.privacy import Event, LedgerBook, epsilon

torch.set_num_threads(1)  # threads do not survive a fork

ROUNDS = 40
PRIVATE = fedfdp.DPSGD(epsilon=None, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5)


@cache
def holders() -> fedfdp.Federation:
    return fedfdp.Federation.partition(load("digits"), clients=4, how="iid", fraction=0.2, seed=0)


def run(folder: Path, *, resume: bool) -> fedfdp.Result:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    method = fedfdp.FedFDP(lr=1.0)
    options = {"privacy": PRIVATE, "rounds": ROUNDS, "eval_every": 4, "out": folder, "resume": resume}
    return fedfdp.train(model, holders(), algorithm=method, **options)


def child(folder: Path) -> int:
    """A process of its own that runs, or goes on with, the run in this folder."""
    pid = os.fork()
    if pid == 0:
        try:
            run(folder, resume=(folder / "run.json").exists())
        except BaseException as error:
            print(f"the run failed: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def released_rounds(folder: Path) -> int:
    """The last round of which anything is on disk."""
    seen = 0
    if (folder / "metrics.jsonl").exists():
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            if line.endswith("}"):
                seen = max(seen, json.loads(line)["round"])
    if (folder / "checkpoint").exists():
        content = (folder / "checkpoint").read_bytes()
        header = content[content.index(b"\n") + 9 :].split(b'\\"round\\": ', 1)[1]
        seen = max(seen, int(header.split(b",", 1)[0].split(b"}", 1)[0]))
    if (folder / "summary.json").exists():
        seen = max(seen, json.loads((folder / "summary.json").read_text())["rounds"])
    return seen


def check(folder: Path) -> int:
    """Raises unless every client's ledger covers every round that left a trace; the number of such rounds."""
    released = released_rounds(folder)
    charged: Counter[str] = Counter()
    if (folder / "ledger.jsonl").exists():
        # opened as a resumed run opens it: a torn last line is repaired, and counted as spent
        header = json.loads((folder / "run.json").read_text())
        names = [f"client-{i}" for i in range(4)]
        budget = epsilon([Event(0.2, (2.0, 5.0), ROUNDS)], 1e-5)
        book = LedgerBook.open(
            folder / "ledger.jsonl",
            data=header["data"],
            config=header["settings"],
            budgets=dict.fromkeys(names, budget),
            delta=1e-5,
        )
        with book:
            charged.update(entry.client for entry in book.entries())
            owed = epsilon([Event(0.2, (2.0, 5.0), released)], 1e-5) if released else 0.0
            for name in names:
                assert book.ledger(name).epsilon() >= owed, (name, book.ledger(name).epsilon(), owed)
                assert charged[name] >= released, (name, charged[name], released)
    else:
        assert released == 0, "something was released without a ledger"
    return released


def trials(kills: int, seed: int, say: bool = False) -> dict[str, int]:
    """So many kills, over as many runs as that takes."""
    rng, done, runs = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as parent:
        whole = Path(parent) / "whole"
        run(whole, resume=False)  # in this process, so that its children find records and budgets computed
        start = time.perf_counter()
        assert os.waitpid(child(Path(parent) / "timed"), 0)[1] == 0
        length = time.perf_counter() - start
        bits = (whole / "model.safetensors").read_bytes()
        while done < kills:
            folder = Path(parent) / f"run-{runs}"
            runs += 1
            while True:
                pid = child(folder)
                time.sleep(rng.random() * length)
                os.kill(pid, signal.SIGKILL)
                killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
                released = check(folder)
                if not killed:  # it had ended by itself
                    break
                done += 1
                if say:
                    print(f"kill {done}: {released} rounds had left a trace, the ledgers cover them", flush=True)
                if done >= kills:
                    break
            if not (folder / "summary.json").exists():
                assert os.waitpid(child(folder), 0)[1] == 0, "a killed run did not go on"
            assert (folder / "model.safetensors").read_bytes() == bits, "a resumed run ended with other bits"
    return {"kills": done, "runs": runs}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(trials(options.kills, options.seed, say=True))
