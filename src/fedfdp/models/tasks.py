"""What a model is trained for: the loss of a record, what its outputs and targets are, and how well an output does.

A new task is one entry in `TASKS`, or a `Task` of your own, by import path or as it is. Under privacy its loss gives
one number per record; the bound on a released loss and the loss before training follow from the number of classes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.importing import imported
from fedfdp.models.losses import (
    IGNORED,
    LossFunction,
    cross_entropy,
    label_entropy,
    next_token_entropy,
    pixel_entropy,
    squared_error,
    token_entropy,
)

OfAnswers = Callable[[Tensor, Tensor], float]  # an answer is the likeliest class at every place
Targets = Literal["class", "numbers", "labels", "places"]


@dataclass(frozen=True)
class Task:
    """A kind of target, and what is computed with it by default."""

    name: str  # how settings and results call it
    loss: LossFunction  # (outputs, targets) → one loss per record
    right: Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) → for each record, the share that is right, or NaN
    meaning: str = ""  # of its outputs, as an error says it
    single: bool = False  # whether one output per record may come without a dimension of its own
    targets: Targets = "class"  # of a record: one class, numbers, labels that are 0 or 1, or a class at every place
    axis: int = -1  # where there is a class at every place: the dimension of the outputs with a value for each class
    of_answers: Mapping[str, OfAnswers] = field(default_factory=dict)  # metrics of a client's answers and targets
    of_loss: Mapping[str, Callable[[float], float]] = field(default_factory=dict)  # … of its mean loss per place
    first: int = 0  # the first place that the model tells: 1 where each is told by those before it

    @property
    def usual(self) -> bool:
        """Whether a record has one class, or numbers: then metrics of all answers exist."""
        return self.targets in ("class", "numbers")

    @property
    def kept(self) -> dict[str, str | int | bool]:
        """What a run keeps of it: its name, and of one that is not in `TASKS` all that predictions need."""
        own = (
            {} if TASKS.get(self.name) is self else {"targets": self.targets, "axis": self.axis, "single": self.single}
        )
        return {"name": self.name, **own}

    def outputs(self, classes: int | None, shape: tuple[int, ...]) -> int:
        """How many values a model gives for a record, or for each of its places; `shape` is that of its targets."""
        if self.targets in ("numbers", "labels") or classes is None:
            return math.prod(shape) or 1
        return classes

    def places(self, y: Tensor) -> Tensor:
        """How many places of each record count; a record that has no places counts as one."""
        if self.targets != "places":
            return torch.ones(len(y), dtype=torch.int64)
        return (y[:, self.first :] != IGNORED).flatten(1).sum(1)

    def fits(self, shape: tuple[int, ...], outputs: int) -> bool:
        """Whether a model with so many outputs may give this shape for a batch."""
        if self.targets == "places":
            return len(shape) >= 3 and -len(shape) <= self.axis < len(shape) and shape[self.axis] == outputs
        return shape[1:] == (outputs,) or (self.single and outputs == 1 and len(shape) == 1)

    def expected(self, outputs: int) -> str:
        """The shape that an error asks for."""
        if self.targets != "places":
            return f"(records, {outputs}) {self.meaning}".rstrip()
        return (
            f"(records, {outputs}, …) {self.meaning}" if self.axis == 1 else f"(records, …, {outputs}) {self.meaning}"
        )

    def answers(self, outputs: Tensor) -> Tensor:
        """What is kept of outputs for metrics: all, or the likeliest class at every place, which is far less."""
        return outputs.argmax(self.axis) if self.targets == "places" else outputs


def _most_likely(output: Tensor, y: Tensor) -> Tensor:
    return output.argmax(-1) == y


def _never(output: Tensor, y: Tensor) -> Tensor:
    """No number is right or wrong."""
    return output.new_full((len(y),), torch.nan)


def _labels_right(output: Tensor, y: Tensor) -> Tensor:
    """The share of a record's labels on whose side of 1/2 the model is."""
    return ((output > 0) == (y > 0.5)).float().flatten(1).mean(1)


def _share_right(answers: Tensor, y: Tensor) -> Tensor:
    """The share of a record's places that are right, of those that count; NaN where none does."""
    counts = y != IGNORED
    return ((answers == y) & counts).flatten(1).sum(1) / counts.flatten(1).sum(1)


def _tokens_right(output: Tensor, y: Tensor) -> Tensor:
    return _share_right(output.argmax(-1), y)


def _next_right(output: Tensor, y: Tensor) -> Tensor:
    return _share_right(output[:, :-1].argmax(-1), y[:, 1:])


def _pixels_right(output: Tensor, y: Tensor) -> Tensor:
    return _share_right(output.argmax(1), y)


def intersection_over_union(answers: Tensor, y: Tensor) -> float:
    """Mean over the classes that occur in answers or targets: places that are in both, over places in either."""
    counts = y != IGNORED
    answers, y = answers[counts], y[counts]
    kinds = sorted({*answers.tolist(), *y.tolist()})
    each = [((answers == k) & (y == k)).sum() / ((answers == k) | (y == k)).sum() for k in kinds]
    return float(torch.stack(each).mean()) if each else math.nan


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


TASKS = {
    task.name: task
    for task in (
        Task("classification", cross_entropy, _most_likely, meaning="for that many classes"),
        Task("regression", squared_error, _never, single=True, targets="numbers"),
        Task("multi-label", label_entropy, _labels_right, meaning="for that many labels", targets="labels"),
        Task("tokens", token_entropy, _tokens_right, meaning="for that many classes of a token", targets="places"),
        Task("language", next_token_entropy, _next_right, meaning="for that many words", targets="places",
             of_loss={"perplexity": _perplexity}, first=1),
        Task("segmentation", pixel_entropy, _pixels_right, meaning="for that many classes of a pixel",
             targets="places", axis=1, of_answers={"iou": intersection_over_union}),
    )
}  # fmt: skip


def task_for(classes: int | None) -> Task:
    """The task of targets that are one of so many classes; None: they are numbers."""
    return TASKS["regression" if classes is None else "classification"]


def find_task(task: "str | Task", setting: str = "task") -> Task:
    """A task by its name, by import path, or as it is."""
    fix = "or package.module:TASK, a fedfdp.Task of yours"
    if isinstance(task, str) and ":" not in task:
        if task not in TASKS:
            raise SettingError(setting, task, nearest(task, TASKS), fix)
        return TASKS[task]
    found: object = imported(task, setting, "TASK", called=False) if isinstance(task, str) else task
    if not isinstance(found, Task):
        raise SettingError(
            setting, task, f"of type {type(found).__name__}, not a fedfdp.Task; {nearest('', TASKS)}", fix
        )
    return found
