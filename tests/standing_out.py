"""A record that stands out and a small model for it: by how many times C a sum moves without that record."""

import torch
from torch import Tensor, nn

from fedfdp.privacy.clipping import clipped_sum
from per_record import CLASSES, cross_entropy

CLIP = 0.5
FAR = 100.0  # the numbers of the record that is looked for


def records() -> tuple[Tensor, Tensor]:
    x = (3 * torch.randn(20, 6, generator=torch.Generator().manual_seed(0))).round()
    x[0] = FAR
    return x, 1 + torch.arange(20) % (CLASSES - 1)  # of class 0 is none, so that gradients do not cancel


class Net(nn.Module):
    """With `between(hidden, x)` between its layers, where an attack stands."""

    def __init__(self, between=lambda h, x: h) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two, self.between = nn.Linear(6, 8), nn.Linear(8, CLASSES), between

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.between(torch.tanh(self.one(x)), x))


def summed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return clipped_sum(model, cross_entropy, x, y, clip=CLIP).flat
