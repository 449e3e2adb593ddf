"""A model with two inputs, a picture and a table, and made-up records of three holders for it.

python examples/two_inputs/both.py
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn


class Both(nn.Module):
    """Its arguments are the arrays that data.inputs names."""

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.last = nn.Conv2d(1, 4, 3), nn.Linear(4 + 3, 2)

    def forward(self, picture: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Scores for two classes."""
        return self.last(torch.cat([self.eye(picture).tanh().mean((2, 3)), table], 1))


def main() -> None:
    chance = np.random.default_rng(0)
    y = chance.integers(0, 2, 900)
    picture = chance.normal(y[:, None, None, None] - 0.5, 1.0, (900, 1, 6, 6)).astype(np.float32)
    table = chance.normal(y[:, None] - 0.5, 1.0, (900, 3)).astype(np.float32)
    holder = np.array(["Elbe", "Rhein", "Weser"])[np.arange(900) % 3]
    np.savez(Path(__file__).with_name("records.npz"), picture=picture, table=table, y=y, holder=holder)


if __name__ == "__main__":
    main()
