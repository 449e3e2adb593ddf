"""The rows of the tables: each method's settings, and its step size, tuned for each data set on a seed of its own."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fedfdp.runs.layers import Settings, layered

TUNED = Path(__file__).parent / "tuned.toml"
PAPER_PRESET, OUR_PRESET = "paper-mnist", "default"


@dataclass(frozen=True)
class Method:
    """One row. `same_as` names the method that this one is, in the setting of the tables, to the last rounding."""

    key: str
    label: str
    settings: dict[str, object]
    same_as: str | None = None
    baseline: bool = True
    privacy: dict[str, object] = field(default_factory=dict)  # what the method asks of the accounting

    @property
    def runs_as(self) -> str:
        return self.same_as or self.key


@cache
def private_methods() -> dict[str, Method]:
    """With one local step per round from the broadcast weights FedProx and SCAFFOLD are FedAvg."""
    return _by_key(
        Method("fedavg", "FedAvg", {"name": "fedavg"}),
        Method("scaffold", "SCAFFOLD", {"name": "scaffold"}, same_as="fedavg"),
        Method("fedprox", "FedProx", {"name": "fedprox"}, same_as="fedavg"),
        Method("feddyn", "FedDyn", {"name": "feddyn"}),
        Method("ali-dpfl", "ALI-DPFL", {"name": "ali_dpfl"}, privacy={"accountant": "rdp"}),
        Method("qffl", "q-FFL", {"name": "qffl"}),
        Method("fedfdp-paper", "FedFDP `paper`", _algorithm(PAPER_PRESET), baseline=False),
        Method("fedfdp", "FedFDP ours", _algorithm(OUR_PRESET), baseline=False),
    )


@cache
def plain_methods() -> dict[str, Method]:
    """Without privacy: one epoch per round in batches of 64. Ours is the default preset's fairness without noise."""
    epoch = {"local_epochs": 1, "batch_size": 64}
    ours = {**_algorithm(OUR_PRESET), **epoch}
    return _by_key(
        Method("fedavg", "FedAvg", {"name": "fedavg", **epoch}),
        Method("scaffold", "SCAFFOLD", {"name": "scaffold", **epoch}),
        Method("fedprox", "FedProx", {"name": "fedprox", **epoch}),
        Method("feddyn", "FedDyn", {"name": "feddyn", **epoch}),
        Method("qffl", "q-FFL", {"name": "qffl", **epoch}),
        Method("fedfair", "FedFair", {"name": "fedfair", "lam": 0.1, **epoch}, baseline=False),
        Method("fedfdp", "FedFDP ours, no noise", ours, baseline=False),
    )


@dataclass(frozen=True)
class StepSize:
    """η and the data set it was tuned on."""

    lr: float
    tuned_on: str


def tuned_lr(method: str, dataset: str, *, private: bool) -> StepSize:
    """The method's own best η on the data set; where it was not tuned there, on the nearest one that it was."""
    tables = _tables(TUNED)["private" if private else "nonprivate"]
    order = [dataset, *(("fashion-mnist", "mnist") if dataset == "cifar10" else ("mnist",))]
    tuned_on = next(name for name in order if method in tables.get(name, {}))
    return StepSize(float(tables[tuned_on][method]), tuned_on)


@cache
def _tables(file: Path) -> Settings:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _algorithm(preset: str) -> dict[str, object]:
    found: dict[str, object] = layered(preset)["algorithm"]
    return {name: value for name, value in found.items() if name != "lr"}


def _by_key(*methods: Method) -> dict[str, Method]:
    return {method.key: method for method in methods}
