"""What an experiment is made of: rows, columns, and the settings that each of them changes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fedfdp.experiments.paper import CIFAR, FASHION, MNIST

DATASET_LABELS = {MNIST: "MNIST", FASHION: "FashionMNIST", CIFAR: "CIFAR10"}
TUNING_SEED = 100

Changes = dict[str, float | str]  # values by section.setting


def _nothing(x: float) -> Changes:
    return {}


def at_rate(x: float, **own: float) -> Changes:
    return {"algorithm.lr": x, **own}


def _once(x: float) -> float:
    return 1.0


@dataclass(frozen=True)
class Row:
    """A method, or one curve of a figure: `at` gives the settings at a value of x, `step` the factor on η there."""

    key: str
    label: str
    method: str
    at: Callable[[float], Changes] = _nothing
    step: Callable[[float], float] = _once


@dataclass(frozen=True)
class Column:
    """A data set with its settings. With `target`, a run is read when it first reaches that accuracy."""

    label: str
    dataset: str
    settings: Changes = field(default_factory=dict)
    x: float = 0.0
    target: float | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or a figure. `evaluations`: of each run; `keeps_sigma`: σ is part of the question."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    private: bool = True
    x_label: str | None = None
    log_x: bool = False
    evaluations: int = 15
    keeps_sigma: bool = False
    rounds_share: float = 1.0
    most_rounds: int | None = None
    seeds: tuple[int, ...] | None = None  # None: 0, 1, …, as many as asked for
    near_best: float = 0.0  # of settings to choose from, the fairest within this much of a method's best accuracy

    @property
    def targets(self) -> bool:
        return any(column.target is not None for column in self.columns)


def datasets() -> tuple[Column, ...]:
    """A column for each of the paper's data sets."""
    return tuple(Column(label, dataset) for dataset, label in DATASET_LABELS.items())
