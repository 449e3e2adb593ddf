"""Many clients on one machine: seconds and megabytes of a round at 1,000, 10,000 and 100,000 clients.

    python scripts/scale.py --picture docs/images/scale.svg      # the table and the picture of docs/cluster.md
    python scripts/scale.py --sampled                            # 1,000 of 1,000,000 clients in a round
    python scripts/scale.py --kills 20                           # 20 kill -9 and resumes of a run of 100,000 clients

Every client has 20 records of 16 numbers, 15 of them for training, and a ledger in a file. Each size is a process of
its own. Seconds are of the processor: on a machine that is busy, those of the clock say nothing.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn

import fedfdp
from fedfdp.training.participation import Attendance

SIZES = (1_000, 10_000, 100_000)
LINE = 170  # bytes of a charge, about
RECORDS, TEST, WIDTH, CLASSES = 20, 5, 16, 4


def holders(clients: int) -> fedfdp.Federation:
    """Clients whose records are rows of one table, dealt out in order."""
    chance = np.random.default_rng(0)
    x = torch.from_numpy(chance.standard_normal((clients * RECORDS, WIDTH), dtype=np.float32))
    y = torch.from_numpy(chance.integers(0, CLASSES, clients * RECORDS))
    names = [f"c{i}" for i in range(clients)]
    places = map(torch.from_numpy, np.arange(clients * RECORDS).reshape(clients, RECORDS))
    parts = ((own[TEST:], own[:TEST]) for own in places)
    return fedfdp.Federation.over(x, y, CLASSES, "scale", names, parts)


def trained(federation: fedfdp.Federation, folder: Path | None, *, rounds: int, **options) -> fedfdp.Result:
    torch.manual_seed(0)
    return fedfdp.train(
        nn.Linear(WIDTH, CLASSES),
        federation,
        algorithm=fedfdp.FedAvg(lr=1.0),
        privacy=fedfdp.DPSGD(epsilon=8.0, sigma=2.0, q=0.1, clip=0.5, delta=1e-5),
        rounds=rounds,
        threads=1,
        out=folder,
        **{"eval_every": rounds, **options},
    )


def memory() -> float:
    """Megabytes at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Laps:
    """Processor seconds between two calls."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def __call__(self) -> float:
        before, self.last = self.last, time.process_time()
        return self.last - before


class Asking(fedfdp.Participation):
    """Who takes part, and when it was asked for: a round begins with it."""

    laps: ClassVar[list[float]] = []
    lap: ClassVar[Laps]

    def round(self, names: Sequence[str], **given: int) -> Attendance:
        self.laps.append(self.lap())
        return super().round(names, **given)


def measured(clients: int, folder: Path, *, share: float = 1.0, rounds: int = 5) -> dict[str, float]:
    """One run in this process, cut after its third round and resumed. Its last round alone is evaluated."""
    lap = Asking.lap = Laps()
    federation = holders(clients)
    found, seen = {"clients": clients, "records": lap(), "records MB": memory()}, list[float]()
    who = {"participation": Asking(fraction=share)}

    def note(_: fedfdp.Update) -> None:
        seen.append(lap())
        if len(seen) == 3:
            raise KeyboardInterrupt

    try:
        trained(federation, folder, rounds=rounds, on_update=note, **who)
    except KeyboardInterrupt:
        found["checkpoint and statement"] = lap()
    found["MB"] = memory()
    trained(federation, folder, rounds=rounds, resume=True, on_update=note, **who)
    found |= {"start": Asking.laps[0], "resume": Asking.laps[3], "first round": seen[0], "round": min(seen[1:4])}
    found |= {"evaluated round": seen[4], "end": lap(), "MB at the end": memory()}
    return {name: round(value, 3) for name, value in found.items()}


def in_process(*arguments: str) -> dict[str, float]:
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, env=alone, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def killed(kills: int, clients: int, rounds: int = 6) -> None:
    """Kills a run at random instants and resumes it; every ledger must show each round that left a trace."""
    chance, done, runs = random.Random(0), 0, 0
    with tempfile.TemporaryDirectory() as parent:
        while done < kills:
            folder, runs = Path(parent) / f"run-{runs}", runs + 1
            while done < kills and not (folder / "summary.json").exists():
                process = subprocess.Popen(
                    [sys.executable, __file__, "--one", str(clients), "--folder", str(folder), "--rounds", str(rounds)],
                    stdout=subprocess.PIPE,
                )
                assert process.stdout is not None
                process.stdout.readline()  # the records are there, the run begins
                wait_within(process, folder, clients, chance)
                process.send_signal(signal.SIGKILL)
                if process.wait() == -signal.SIGKILL:
                    done += 1
                    print(
                        f"kill {done}: {covered(folder, clients)} rounds had left a trace, all ledgers cover them",
                        flush=True,
                    )
    print(f"{done} kills over {runs} runs of {clients:,} clients: no ledger showed less than was released")


def wait_within(process: "subprocess.Popen[bytes]", folder: Path, clients: int, chance: random.Random) -> None:
    """Until a random instant: at first, while ledgers are read, or at some charge of the next two rounds, or after."""
    ledger = folder / "ledger.jsonl"
    if chance.random() < 0.25:
        time.sleep(chance.random() * 10)
        return
    least = (ledger.stat().st_size if ledger.exists() else 0) + chance.random() * 2 * clients * LINE
    while process.poll() is None and (not ledger.exists() or ledger.stat().st_size < least):
        time.sleep(0.01)
    time.sleep(chance.random() * 2)


def covered(folder: Path, clients: int) -> int:
    """Raises unless every client has a whole line in the ledger for each round of which anything is on disk."""
    sys.path.insert(0, str(Path(__file__).parent))
    from kill_test import released_rounds

    released, charged = released_rounds(folder) if folder.exists() else (0, 0)
    file = folder / "ledger.jsonl"
    lines = file.read_bytes().split(b"\n")[1:-1] if file.exists() else []
    paid = Counter(json.loads(line)["client"] for line in lines)
    assert sum(paid.values()) >= charged
    assert all(paid[f"c{i}"] >= released for i in range(clients if released else 0))
    return released


def drawn(rows: list[dict[str, float]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    sizes = [row["clients"] for row in rows]
    left.loglog(sizes, [row["round"] for row in rows], "o-")
    left.set(xlabel="clients", ylabel="processor seconds a round")
    right.loglog(sizes, [row["MB at the end"] for row in rows], "o-", label="at most")
    right.loglog(sizes, [row["records MB"] for row in rows], "o--", label="once the records are read")
    right.set(xlabel="clients", ylabel="MB")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--clients", type=int, default=100_000, help="of the runs that are killed")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        federation = holders(options.one)
        print("at work", flush=True)
        began = (options.folder / "run.json").exists()
        trained(federation, options.folder, rounds=options.rounds, resume=began, eval_every=2)
    elif options.one:
        with tempfile.TemporaryDirectory() as parent:
            print(json.dumps(measured(options.one, Path(parent) / "run", share=options.share)))
    elif options.kills:
        killed(options.kills, options.clients)
    else:
        runs = (
            [("--one", "1000000", "--share", "0.001")]
            if options.sampled
            else [("--one", str(n)) for n in options.sizes]
        )
        rows = []
        for arguments in runs:
            rows.append(in_process(*arguments))
            if len(rows) == 1:
                print("| " + " | ".join(rows[0]) + " |\n|" + " ---: |" * len(rows[0]))
            print("| " + " | ".join(f"{value:,.6g}" for value in rows[-1].values()) + " |", flush=True)
        if options.picture:
            drawn(rows, options.picture)


if __name__ == "__main__":
    main()
