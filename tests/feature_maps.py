"""Maps of one record by itself that tests name as features."""

import torch
from torch import Tensor, nn


class Cosines(nn.Module):
    """Random cosines of a flattened record, always the same ones."""

    def __init__(self, inputs: int = 64, outputs: int = 20) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(inputs, outputs, generator=chance) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) @ self.weight).cos()


class Broken(Cosines):
    """Works on made-up records and not on real ones."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.abs().max()) > 0:
            raise ValueError(f"a record that nobody may see: {x.flatten()[:3].tolist()}")
        return super().forward(x)
