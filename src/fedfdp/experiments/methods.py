"""The rows of the tables: each method's settings, and its step size, tuned for each data set on a seed of its own."""

import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.runs.layers import Settings, layered

TUNED = Path(__file__).parent / "tuned.toml"
PAPER_PRESET, OUR_PRESET = "paper-mnist", "default"
OWN = {
    "afl": ("mixture_rate", (0.001, 0.01, 0.1)),
    "term": ("t", (0.5, 2.0, 5.0)),
    "propfair": ("baseline", (3.0, 5.0, 10.0)),
    "semivred": ("beta", (0.5, 2.0, 5.0)),
    "fedmgda": ("distance", (0.1, 0.5, 1.0)),
    "fedfv": ("keep", (0.0, 0.1, 0.5)),
    "qffl": ("q_f", (0.1, 1.0, 2.0)),
    "fedfdp": ("server_lam", (1.0, 2.5, 5.0)),
    "mrmtl": ("lam", (0.001, 0.01, 0.1)),
    "ditto": ("lam", (0.001, 0.01, 0.1)),
}


@dataclass(frozen=True)
class Method:
    """One row. `same_as` names the method that this one is, in the setting of the tables, to the last rounding."""

    key: str
    label: str
    settings: dict[str, object]
    same_as: str | None = None
    baseline: bool = True
    privacy: dict[str, object] = field(default_factory=dict)  # what the method asks of the accounting
    own: tuple[str, tuple[float, ...]] | None = None  # its setting that is tuned beside η, and what is tried

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
        Method("ali-dpfl", "ALI-DPFL", {"name": "ali_dpfl"}, privacy={"accountant": "rdp", "sigma": 2.0}),
        Method("qffl", "q-FFL", {"name": "qffl"}),
        Method("fedfdp-paper", "FedFDP `paper`", _algorithm(PAPER_PRESET), baseline=False),
        Method("fedfdp", "FedFDP ours", _algorithm(OUR_PRESET), baseline=False),
    )


@cache
def fair_methods() -> dict[str, Method]:
    """The fair rules and personal models beside FedAvg, q-FFL and ours; each with the settings of its defaults."""
    rules = {"afl": "AFL", "term": "TERM", "propfair": "PropFair", "semivred": "Semi-VRed"}
    rules |= {"fedmgda": "FedMGDA+", "fedfv": "FedFV", "local": "alone", "mrmtl": "MR-MTL", "ditto": "Ditto"}
    return _by_key(*(Method(name, label, {"name": name}, own=OWN.get(name)) for name, label in rules.items()))


@cache
def compared_methods() -> dict[str, Method]:
    """FedAvg, q-FFL and ours beside them, each with what is tuned of its own."""
    usual = {key: replace(private_methods()[key], own=OWN.get(key)) for key in ("fedavg", "qffl", "fedfdp")}
    return {"fedavg": usual["fedavg"], "qffl": usual["qffl"], **fair_methods(), "fedfdp": usual["fedfdp"]}


def methods_of(*, private: bool) -> dict[str, Method]:
    """All rows that an experiment may have."""
    if private:
        return {**private_methods(), **fair_methods()}
    epoch = {"local_epochs": 1, "batch_size": 64}
    fair = [replace(method, settings={**method.settings, **epoch}) for method in fair_methods().values()]
    return {**plain_methods(), **_by_key(*fair)}


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
    """η, the data set it was tuned on, and the method that it was tuned for."""

    lr: float
    tuned_on: str
    tuned_for: str
    own: dict[str, float] = field(default_factory=dict)  # what else was tuned of this method


def tuned_lr(method: str, dataset: str, *, private: bool, scale: str = "small") -> StepSize:
    """The method's own best η on the data set; where it was not tuned there, on the nearest one that it was.

    A method that was tuned nowhere takes FedAvg's. At a scale with a section of its own, the data sets there take its.
    """
    kind = "private" if private else "nonprivate"
    tables = {**_tables(TUNED)[kind], **_tables(TUNED).get(f"{kind}-{scale}", {})}
    order = [dataset, *(("fashion-mnist", "mnist") if dataset == "cifar10" else ("mnist",))]
    for key in (method, "fedavg"):
        for tuned_on in order:
            if key in tables.get(tuned_on, {}):
                found = tables[tuned_on][key]
                own = dict(found) if isinstance(found, dict) else {"lr": float(found)}
                return StepSize(own.pop("lr"), tuned_on, key, own if key == method else {})
    raise RunError(f"{TUNED.name} has no step size for fedavg on any of {', '.join(order)}")


@cache
def _tables(file: Path) -> Settings:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _algorithm(preset: str) -> dict[str, object]:
    found: dict[str, object] = layered(preset)["algorithm"]
    return {name: value for name, value in found.items() if name != "lr"}


def _by_key(*methods: Method) -> dict[str, Method]:
    return {method.key: method for method in methods}
