"""A linear model that takes as long as the process's SLOW_SECONDS say: a node that is too slow for a deadline."""

import os
import time

import torch
from torch import Tensor, nn


class SlowLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) and torch.is_grad_enabled():
            time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
        out: Tensor = self.inner(x.flatten(1))
        return out
