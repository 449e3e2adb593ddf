"""A linear model of a node that is too slow for a deadline: once the node has paid, every pass takes SLOW_SECONDS."""

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn


class SlowLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) and torch.is_grad_enabled() and "SLOW_SECONDS" in os.environ:
            ledger = Path(os.environ["SLOW_LEDGER"])  # the model is looked at before, on made-up records
            if ledger.exists() and ledger.read_text().count("\n") > 1:
                time.sleep(float(os.environ["SLOW_SECONDS"]))
        out: Tensor = self.inner(x.flatten(1))
        return out
