"""What every peer is given and must do: a task of one batch, and a step that is timed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfdp.core.records import Weights


@dataclass(frozen=True)
class Setting:
    """The private step's numbers; the small step keeps weights sound however often it is repeated."""

    clip: float = 0.1
    sigma: float = 2.0
    sigma_loss: float = 5.0  # a round releases a loss too
    lr: float = 0.01


@dataclass(frozen=True)
class Task:
    """A model of the peer's own and the records of one batch, which every step takes from their pool by index."""

    model: nn.Module
    x: Tensor
    y: Tensor
    setting: Setting

    @property
    def batch(self) -> int:
        return len(self.x)

    def take(self) -> tuple[Tensor, Tensor]:
        index = torch.arange(len(self.x))
        return self.x[index], self.y[index]


class Peer(ABC):
    """What is measured: `step` is timed, `prepare` before each is not."""

    def prepare(self) -> None:  # noqa: B027 - most need none
        pass

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def weights(self) -> Weights: ...


class StepPeer(Peer):
    """A peer whose weights are its model's."""

    def __init__(self, task: Task) -> None:
        self.task, self.model = task, task.model
        self.parameters = dict(task.model.named_parameters())

    def weights(self) -> Weights:
        return Weights.of(self.parameters)


def backward(loss: Tensor) -> None:
    """loss.backward(), which torch leaves without types."""
    torch.autograd.backward(loss)
