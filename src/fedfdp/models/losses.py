"""The losses, one per record. Never averages over records: a mean over a batch could not be made private."""

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from fedfdp.core.importing import imported

LossFunction = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) → one loss per record


IGNORED = -100  # a target that does not count: padding, or a token that is not to be predicted


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of classification."""
    return functional.cross_entropy(output, y, reduction="none")


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """The loss of regression: the mean over a record's targets of the squared error."""
    targets = math.prod(y.shape[1:])  # of an empty batch torch cannot work it out
    gap = output.reshape(len(y), targets) - y.reshape(len(y), targets).to(output.dtype)
    return gap.square().mean(1)


def label_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of several labels that are each 0 or 1: the mean over a record's labels of the binary cross-entropy."""
    labels = y.reshape(output.shape).to(output.dtype)
    return functional.binary_cross_entropy_with_logits(output, labels, reduction="none").mean(1)


def token_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of a class for every token: the mean cross-entropy over a record's tokens that count."""
    return _mean_entropy(output.transpose(1, 2), y)


def next_token_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of a language model: the mean cross-entropy of a record's tokens, each told by those before it."""
    return _mean_entropy(output[:, :-1].transpose(1, 2), y[:, 1:])


def pixel_entropy(output: Tensor, y: Tensor) -> Tensor:
    """The loss of a class for every pixel: the mean cross-entropy over a record's pixels that count."""
    return _mean_entropy(output.flatten(2), y.flatten(1))


def _mean_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Over the places of each record by itself; 0 for a record in which none counts."""
    each = functional.cross_entropy(output, y, reduction="none", ignore_index=IGNORED)
    return each.sum(1) / (y != IGNORED).sum(1).clamp(min=1)


def loss_at(path: str) -> LossFunction:
    """A loss of yours, by import path: called with outputs and targets, it gives one loss per record."""
    return imported(path, "loss")  # type: ignore[no-any-return]
