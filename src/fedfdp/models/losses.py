"""What a model is trained for, task by task: the loss of a record, what its outputs are, when an output is right.

A new task is one entry in `TASKS`. Never averages over records: a mean over a batch could not be made private.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.core.importing import imported

LossFunction = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) → one loss per record


@dataclass(frozen=True)
class Task:
    """A kind of target, and what is computed with it by default."""

    name: str
    loss: LossFunction
    right: Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) → for each record, whether it is right, or NaN
    meaning: str = ""  # of its outputs, as an error says it
    single: bool = False  # whether one output per record may come without a dimension of its own

    def fits(self, shape: tuple[int, ...], outputs: int) -> bool:
        """Whether a model with so many outputs per record may give this shape for a batch."""
        return shape[1:] == (outputs,) or (self.single and outputs == 1 and len(shape) == 1)


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of classification."""
    return functional.cross_entropy(output, y, reduction="none")


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """The loss of regression: the mean over a record's targets of the squared error."""
    targets = math.prod(y.shape[1:])  # of an empty batch torch cannot work it out
    gap = output.reshape(len(y), targets) - y.reshape(len(y), targets).to(output.dtype)
    return gap.square().mean(1)


def _most_likely(output: Tensor, y: Tensor) -> Tensor:
    return output.argmax(-1) == y


def _never(output: Tensor, y: Tensor) -> Tensor:
    """No number is right or wrong."""
    return output.new_full((len(y),), torch.nan)


TASKS = {
    task.name: task
    for task in (
        Task("classification", cross_entropy, _most_likely, meaning="for that many classes"),
        Task("regression", squared_error, _never, single=True),
    )
}


def task_for(classes: int | None) -> Task:
    """The task of targets that are one of so many classes; None: they are numbers."""
    return TASKS["regression" if classes is None else "classification"]


def loss_at(path: str) -> LossFunction:
    """A loss of yours, by import path: called with outputs and targets, it gives one loss per record."""
    return imported(path, "loss")  # type: ignore[no-any-return]


def check_loss(loss: LossFunction, y: Tensor, outputs: int) -> None:
    """Raises unless the loss gives one number for each record."""
    records = y[:2]
    try:
        shape = tuple(loss(torch.zeros(len(records), outputs), records).shape)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise SettingError("loss", _name(loss), f"fails on two records: {str(error).splitlines()[0]}") from None
    if shape != (len(records),):
        fix = "leave out the mean over the batch: reduction='none'"
        raise SettingError("loss", _name(loss), f"gives shape {shape} for {len(records)} records, one loss each", fix)


def _name(loss: LossFunction) -> str:
    return str(getattr(loss, "__qualname__", type(loss).__name__))
