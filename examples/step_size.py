"""What the step size does to small tables when all else is left at its defaults: why `data check` warns of lr = 16.

    python examples/step_size.py        # --partitions N

Breast cancer, wine and diabetes as in their examples, with ε = 3 and FedFDP's defaults but for η; the mean over
partitions 100, 101, …
"""

import argparse
import runpy
import tempfile
from pathlib import Path

import torch

import fedfdp
from fedfdp.data import Federation
from fedfdp.runs import config
from fedfdp.runs.build import federation_of

HERE = Path(__file__).parent
MEASURE = runpy.run_path(str(HERE / "measure.py"))
module, reached = MEASURE["module"], MEASURE["reached"]
TABLES = {"breast_cancer": "accuracy, %", "wine": "accuracy, %", "diabetes": "root mean squared error"}
STEPS = (16.0, 2.0, 0.5)
FIRST = 100


def holders(table: str, seed: int) -> Federation:
    if table == "wine":
        federation: Federation = module(HERE / "wine.py").growers(seed)
        return federation
    file = str(HERE / table / "run.toml")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / Path(config.load(file).data.source).name
        module(HERE / table / "holders.py").write(place, seed)
        return federation_of(config.load(file, [f"seed={seed}", f"data.source={place}"]))


def trained(federation: Federation, lr: float, seed: int) -> float:
    regression = federation.classes is None
    model = torch.nn.Linear(federation.input_shape[0], federation.classes or 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    summary = fedfdp.train(
        model,
        federation,
        algorithm=fedfdp.FedFDP(lr=lr, initial_loss=0.3 if regression else None),
        privacy=fedfdp.DPSGD(epsilon=3.0),
        seed=seed,
        eval_every=10**6,
    ).summary
    return reached(summary, 175.0)[0] if regression else 100 * reached(summary, 1.0)[0]  # 175: half of [0, 350]


def main(partitions: int) -> None:
    print("| | " + " | ".join(f"η = {lr:g}" for lr in STEPS) + " |\n| --- |" + " ---: |" * len(STEPS))
    for table, unit in TABLES.items():
        found = []
        for lr in STEPS:
            seeds = range(FIRST, FIRST + partitions)
            found.append(sum(trained(holders(table, seed), lr, seed) for seed in seeds) / partitions)
        print(f"| {table}, {unit} | " + " | ".join(f"{value:.1f}" for value in found) + " |", flush=True)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--partitions", type=int, default=4)
    main(asked.parse_args().partitions)
