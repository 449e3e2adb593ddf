"""Two workers of one core each against the local engine on one core: rounds of clients of the small CNN.

    python scripts/ray_speed.py                       # as large as MNIST: 600 records each, of which 60 in a round
    python scripts/ray_speed.py --records 400 --q 0.05   # 20 in a round
    python scripts/ray_speed.py --clients 1000 --records 120 --q 0.5 --rounds 5   # several groups for each worker

The rounds of both are interleaved in one process, so that whatever else the machine does meets both. Beside the ratio
of the medians, the load of the machine, and processor seconds: of the local engine, of the driver, and of the worker
that computes longest. Where other programs take the cores, these alone tell overhead from waiting: on an idle machine
a round cannot be quicker than driver and worker together.
"""

import argparse
import os
import statistics
import time

import ray
import torch

import fedfdp
from fedfdp.algorithms import FedFDP
from fedfdp.algorithms.base import Population
from fedfdp.core import weights as w
from fedfdp.engines.local import LocalEngine
from fedfdp.engines.ray.settings import Ray
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.noise.randomness import Seeded


def computed(engine: LocalEngine) -> list[float]:
    """Processor seconds of each worker so far; none of an engine without workers."""
    asked = [one.__ray_call__.remote(lambda _: time.process_time()) for one in getattr(engine, "workers", ())]
    return ray.get(asked) if asked else []  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--records", type=int, default=600, help="of each client")
    parser.add_argument("--q", type=float, default=0.1, help="the part of them that a round takes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chance = torch.Generator().manual_seed(0)
    records = {
        f"client-{i}": (torch.randn(options.records, 1, 28, 28, generator=chance), torch.arange(options.records) % 10)
        for i in range(options.clients)
    }
    holders = fedfdp.Federation.from_clients(records)
    learner = Learner(build("small-cnn", input_shape=(1, 28, 28), outputs=10, seed=0), cross_entropy)
    method, private = (
        FedFDP(lr=1.0, server_lam=2.0),
        fedfdp.DPSGD(sigma=2.0, sigma_loss=5.0, q=options.q, clip=0.1, epsilon=3.0),
    )
    given = {"privacy": private, "randomness": Seeded(0), "book": None}
    engines = {
        "local": LocalEngine(holders, learner, method, **given),
        "ray": Ray(workers=options.workers)(holders, learner, method, **given),
    }
    population = Population(options.clients, sum(holders.sizes), min(holders.sizes), 10)
    broadcast = method.broadcast(method.init(learner.initial(), population, private))
    took: dict[str, list[float]] = {name: [] for name in engines}
    spent: dict[str, list[float]] = {"local": [], "driver": [], "worker": []}
    for number in range(options.rounds + 1):
        for name, engine in engines.items():
            before, start, here = computed(engine), time.perf_counter(), time.process_time()
            total = w.zeros_like(broadcast.weights)
            for upload, _ in engine.round(broadcast, {}):
                w.add_(total, upload.update)
            seconds, here = time.perf_counter() - start, time.process_time() - here
            if not number:  # the first round compiles
                continue
            took[name].append(seconds)
            spent["driver" if before else "local"].append(here)
            if before:
                spent["worker"].append(max(b - a for a, b in zip(before, computed(engine), strict=True)))
    local, spread_out = (statistics.median(took[name]) for name in ("local", "ray"))
    spread = statistics.quantiles([a / b for a, b in zip(took["local"], took["ray"], strict=True)], n=4)
    print(f"{options.rounds} rounds of {options.clients} clients, each with {options.q} of {options.records} records")
    print(f"interleaved; {options.workers} workers of one core each")
    print(f"local {local:.2f} s, ray {spread_out:.2f} s a round: ratio of medians {local / spread_out:.2f}")
    print(f"ratio of each pair of rounds: quartiles {spread[0]:.2f}, {spread[1]:.2f}, {spread[2]:.2f}")
    of = {name: statistics.median(values) for name, values in spent.items()}
    ceiling = of["local"] / (of["driver"] + of["worker"])
    shown = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in of.items())
    print(f"processor seconds a round: {shown}; local / (driver + worker) {ceiling:.2f}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    engines["ray"].close()


if __name__ == "__main__":
    main()
