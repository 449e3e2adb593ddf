"""What the examples reach on partitions that no setting was chosen on: pooled, federated, federated and private.

    python examples/measure.py breast_cancer        # or wine, digits, diabetes; --partitions N

The pooled model is scikit-learn's, of the same kind and on the same inputs, with all records in one place; all are
measured on the records that the holders hold back. Settings were chosen on partitions 100 and up; 0, 1, … are reported.
"""

import argparse
import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression

from fedfdp.data import Federation
from fedfdp.runs import config
from fedfdp.runs.build import federation_of, launch

HERE = Path(__file__).parent
FEDAVG = {
    "breast_cancer": ["rounds=50", "algorithm.lr=2", "algorithm.local_epochs=2", "algorithm.batch_size=16"],
    "digits": ["rounds=50", "algorithm.lr=0.5", "algorithm.local_epochs=1"],
    "diabetes": ["rounds=60", "algorithm.lr=0.05", "algorithm.local_epochs=1"],
}
Found = tuple[float, float]  # of all held-back records, and of the worst holder: accuracy, or root mean squared error


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def pooled(federation: Federation, scale: float) -> Found:
    x, y = federation.x.reshape(len(federation.x), -1).numpy(), federation.y.numpy()
    train = torch.cat([client.train.index for client in federation.clients]).numpy()
    tests = [client.test.index.numpy() for client in federation.clients]
    model = LinearRegression() if federation.classes is None else LogisticRegression(max_iter=5000)
    model.fit(x[train], y[train])
    if federation.classes is None:
        errors = [(model.predict(x[test]) - y[test]) ** 2 for test in tests]
        return scale * float(np.concatenate(errors).mean()) ** 0.5, scale * max(e.mean() for e in errors) ** 0.5
    right = [model.predict(x[test]) == y[test] for test in tests]
    return float(np.concatenate(right).mean()), min(float(part.mean()) for part in right)


def reached(summary: dict[str, Any], scale: float) -> Found:
    if summary["accuracy"] is None:
        return scale * summary["loss"] ** 0.5, scale * summary["worst_loss"] ** 0.5
    return summary["accuracy"], summary["worst_accuracy"]


def measure(example: str, seed: int) -> dict[str, Found]:
    """One partition: what each way of training reaches."""
    if example == "wine":
        wine = module(HERE / "wine.py")
        with contextlib.redirect_stdout(sys.stderr):
            plain, private = wine.main(seed)
        return {
            "pooled": pooled(wine.growers(seed), 1.0),
            "FedAvg, without privacy": reached(plain, 1.0),
            "FedFDP, ε = 3": reached(private, 1.0),
        }
    source = config.load(str(HERE / example / "run.toml")).data.source
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / Path(source).name
        module(HERE / example / "holders.py").write(place, seed)
        given = [f"seed={seed}", f"data.source={place}"]
        private = config.load(str(HERE / example / "run.toml"), given)
        federation = federation_of(private)
    fedavg = [*given, "privacy=none", "algorithm.name=fedavg", *FEDAVG[example]]
    plain = config.load(str(HERE / example / "run.toml"), fedavg)
    target = private.data.target
    scale = (target[1] - target[0]) / 2 if isinstance(target, tuple) else 1.0  # targets are trained on as −1 to 1
    return {
        "pooled": pooled(federation, scale),
        "FedAvg, without privacy": reached(launch(plain, federation=federation).summary, scale),
        "FedFDP, ε = 3": reached(launch(private, federation=federation).summary, scale),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", choices=["breast_cancer", "wine", "digits", "diabetes"])
    parser.add_argument("--partitions", type=int, default=10)
    given = parser.parse_args()
    runs = [measure(given.example, seed) for seed in range(given.partitions)]
    share = given.example != "diabetes"
    unit, sign = (100, 1) if share else (1, -1)
    what = "accuracy, %" if share else "root mean squared error"
    print(f"| {what} | all | behind pooled (range) | worst holder (worst of all) |\n| --- | ---: | ---: | ---: |")
    base = np.array([run["pooled"][0] for run in runs])
    for name in runs[0]:
        total, worst = np.array([run[name] for run in runs]).T
        gap = sign * unit * (base - total)
        behind = "" if name == "pooled" else f"{gap.mean():z.1f} ({gap.min():z.1f} to {gap.max():z.1f})"
        last = worst.min() if share else worst.max()
        print(f"| {name} | {unit * total.mean():.1f} | {behind} | {unit * worst.mean():.1f} ({unit * last:.1f}) |")


if __name__ == "__main__":
    main()
