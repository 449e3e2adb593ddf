"""Metrics of the model's answers for all test records together: what a mean of losses cannot tell.

They need every answer beside its target. So they exist in a simulation only: a node gives out its loss and its
accuracy, and nothing of this.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfdp.fairness.metrics.groups import GROUPS, Groups
from fedfdp.fairness.metrics.registry import METRICS, Metric, Task, register

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
MOST_NAMED = 100  # classes that are kept one by one
MOST_CONFUSED = 30  # classes of which a confusion matrix is kept


@dataclass(frozen=True)
class Answers:
    """The answers for all test records, their targets, and the best answer that never looks at a record.

    Classes are numbers from 0; `names` are what people call them. Numbers of a regression are in the target's own unit.
    """

    outputs: Floats  # (records, classes): the probability of each class; (records, targets): the values
    targets: NDArray[np.generic]  # (records,) class numbers; (records, targets) values
    owner: Counts  # the client of each record, by position
    constant: Floats  # the most frequent class of the training records, or the means of their targets
    names: tuple[str, ...] = ()  # of the classes; none for regression
    groups: Groups | None = None  # that are compared with each other, where a column for them was declared

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def task(self) -> Task:
        return "classification" if self.names else "regression"

    def by_client(self, clients: int) -> list["Answers"]:
        """The answers for each client's records alone."""
        return [self._of(self.owner == client) for client in range(clients)]

    def _of(self, kept: NDArray[np.bool_]) -> "Answers":
        groups = None if self.groups is None else self.groups.at(kept)
        return Answers(self.outputs[kept], self.targets[kept], self.owner[kept], self.constant, self.names, groups)

    @cached_property
    def confusion(self) -> Counts:
        """How many records of each class (row) were given each answer (column)."""
        classes = len(self.names)
        pairs = self.targets.astype(np.int64) * classes + self.outputs.argmax(1)
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    @cached_property
    def recall(self) -> Floats:
        """By class: the share of its records that were recognised; NaN where there is none."""
        return _share(self.confusion.diagonal(), self.confusion.sum(1))

    @cached_property
    def precision(self) -> Floats:
        """By class: the share of the records given this answer that are of this class; NaN where there is none."""
        return _share(self.confusion.diagonal(), self.confusion.sum(0))

    @cached_property
    def given(self) -> Floats:
        """By group: the share of its records that are given the favourable class (demographic parity)."""
        return self._by_group(np.ones(len(self), dtype=np.bool_))

    @cached_property
    def recognised(self) -> Floats:
        """By group: the same among its records that are of the favourable class (equal opportunity)."""
        assert self.groups is not None
        return self._by_group(self.targets == self.groups.favourable)

    def _by_group(self, among: NDArray[np.bool_]) -> Floats:
        assert self.groups is not None
        return self.groups.shares(self.outputs.argmax(1) == self.groups.favourable, among)

    @cached_property
    def gaps(self) -> Floats:
        """Answer minus target."""
        return self.outputs - self.targets.astype(np.float64)

    @property
    def baseline_gaps(self) -> Floats:
        """The same for the constant answer."""
        return self.constant - self.targets.astype(np.float64)


def by_class(answers: Answers | None) -> dict[str, object] | None:
    """What is kept class by class: names, records, recall, precision and, of few classes, the confusion matrix.

    `constant` is the class that is most frequent among the training records.
    """
    if answers is None or not 0 < len(answers.names) <= MOST_NAMED:
        return None
    whole = len(answers.names) <= MOST_CONFUSED
    return {
        "names": list(answers.names),
        "constant": answers.names[int(answers.constant)],
        "records": answers.confusion.sum(1).tolist(),
        "recall": _or_none(answers.recall),
        "precision": _or_none(answers.precision),
        "confusion": answers.confusion.tolist() if whole else None,
    }


def by_group(answers: Answers | None) -> dict[str, object] | None:
    """What is kept group by group: names, test records, accuracy, and how often each gets the favourable class."""
    if answers is None or (groups := answers.groups) is None:
        return None
    everyone = np.ones(len(answers), dtype=np.bool_)
    right = groups.shares(answers.outputs.argmax(1) == answers.targets, everyone)
    return {
        "column": groups.column,
        "favourable": answers.names[groups.favourable],
        "names": list(groups.names),
        "records": groups.counts(everyone).tolist(),
        "favourable_records": groups.counts(answers.targets == groups.favourable).tolist(),
        "accuracy": _or_none(right),
        "given": _or_none(answers.given),
        "recognised": _or_none(answers.recognised),
    }


def auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """The probability that a positive record has a higher score than a negative one, ties counted as half.

    NaN where one of the two does not occur.
    """
    many = int(positive.sum())
    others = len(positive) - many
    if not many or not others or not np.isfinite(scores).all():
        return math.nan
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal scores share the mean of their ranks
    return float((ranks[which][positive].sum() - many * (many + 1) / 2) / (many * others))


def macro_auc(answers: Answers) -> float:
    """The mean, over the classes that occur, of the AUC of each class against all others."""
    every = [auc(answers.outputs[:, k], answers.targets == k) for k in range(len(answers.names))]
    known = [value for value in every if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def r_squared(answers: Answers) -> float:
    """1 − Σ(gap²)/Σ(target − mean)²: 1 is perfect, 0 is as good as the targets' mean, below 0 is worse."""
    targets = answers.targets.astype(np.float64)
    spread = float(((targets - targets.mean(0)) ** 2).sum())
    return 1 - float((answers.gaps**2).sum()) / spread if spread > 0 else math.nan


def _or_none(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _share(part: Counts, whole: Counts) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return part / np.where(whole > 0, whole, np.nan)


def root_mean_square(gaps: Floats) -> float:
    """√(mean of the squares)."""
    with np.errstate(over="ignore"):
        return float(np.sqrt((gaps**2).mean()))


OfAnswers = Callable[[Answers], float]
OF_ANSWERS: dict[str, OfAnswers] = {}  # by the metric's name, in the order in which they are shown
OF_ONE_CLIENT: list[str] = []  # those that are computed of each client's answers too


def there(answers: Answers, names: Iterable[str]) -> list[str]:
    """Those of these metrics that exist for such answers: for their task, and of groups only where there are some."""
    of_task = [name for name in names if answers.task in METRICS[name].tasks]
    return [name for name in of_task if METRICS[name].needs != GROUPS or answers.groups is not None]


def of_answers(metric: Metric) -> Callable[[OfAnswers], OfAnswers]:
    """Declares a function of all answers together as this metric; with `by_client` of each client's too."""

    def declare(compute: OfAnswers) -> OfAnswers:
        register(metric)
        OF_ANSWERS[metric.name] = compute
        if metric.by_client:
            OF_ONE_CLIENT.append(metric.name)
        return compute

    return declare
