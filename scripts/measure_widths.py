"""Nested widths against the full model for all, without privacy: how good the full model is, what narrower ones save.

    python scripts/measure_widths.py --out runs/widths

Nine holders of a fifth of MNIST, three each at width 1, ½ and ¼, 40 rounds of one epoch of FedAvg; beside them the same
run with the full model for all. The released full model is judged on the test records of all holders. Runs that are
there are not run again.
"""

import argparse
import time
from pathlib import Path

import torch

from fedfdp.algorithms.base import Upload
from fedfdp.core.records import to_bytes
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.released import load

WIDTHS = {0.5: ("client-3", "client-4", "client-5"), 0.25: ("client-6", "client-7", "client-8")}
COMMON = ["privacy=none", "rounds=40", "data.fraction=0.2", "data.clients=9", "algorithm.name=fedavg"]
COMMON += ["algorithm.lr=0.3", "algorithm.local_epochs=1", "server.average=0"]
FACTS = {"input_shape": (1, 28, 28), "outputs": 10, "seed": 0}
PARTITIONS = {"iid": ["data.partition=iid"], "dirichlet-0.5": ["data.partition=dirichlet", "data.beta=0.5"]}


def accuracy(folder: Path, settings: configs.Config) -> float:
    """Of the released full model, on the test records of all holders together."""
    net, right, count = load(folder), 0, 0
    for client in federation_of(settings).clients:
        x, y = client.test.take()
        with torch.inference_mode():
            right, count = right + int((net(x).argmax(1) == y).sum()), count + len(y)
    return right / count


def savings() -> list[str]:
    """What a holder of each width sends, and how long its epoch takes: interleaved, as ratios to the full model."""
    settings = configs.load("default", COMMON)
    x, y = federation_of(settings).clients[0].train.take()
    built = {width: build("small-cnn", **FACTS, arguments={"width": width}) for width in (1, 0.5, 0.25)}
    learners = {width: Learner(model, cross_entropy) for width, model in built.items()}
    coefficient = settings.algorithm.coefficient(None, None)
    times = {width: [] for width in learners}
    for _ in range(15):
        for width, learner in learners.items():
            weights, start = learner.initial(), time.perf_counter()
            for part in torch.split(torch.arange(len(y)), 64):
                learner.gradient(weights, x[part], y[part], coefficient)
            times[width].append(time.perf_counter() - start)
    middle = {width: sorted(found)[len(found) // 2] for width, found in times.items()}
    sent = {width: len(to_bytes(Upload("a", 1, learner.initial()))) for width, learner in learners.items()}
    ratios = {width: (sent[width] / sent[1], middle[width] / middle[1]) for width in learners}
    return [f"width {w:g}: {sent[w]:,} bytes each way ({b:.2f}), time {t:.2f}" for w, (b, t) in ratios.items()]


def main() -> None:
    """Runs what is missing and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/widths"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    narrow = [f"model.widths.{name}={width}" for width, names in WIDTHS.items() for name in names]
    for partition, dealt in PARTITIONS.items():
        for seed in range(given.seeds):
            found = []
            for kind, more in (("full", []), ("mixed", narrow)):
                settings = configs.load("default", [*COMMON, *dealt, f"seed={seed}", *more]).resolved()
                folder = given.out / f"{partition}-{kind}-{seed}"
                if not (folder.exists() and RunFolder(folder).finished):
                    launch(settings, out=folder, resume=folder.exists())
                found.append(accuracy(folder, settings))
            print(f"{partition}, seed {seed}: full for all {found[0]:.2%}, widths 1, ½, ¼ {found[1]:.2%}", flush=True)
    print("\n".join(savings()))


if __name__ == "__main__":
    main()
