"""The models that are measured, and random records for them: nothing is downloaded, and time depends on no value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedfdp import models

CLASSES = 10


@dataclass(frozen=True)
class Subject:
    """One model: what `fedfdp.models.build` makes it from, and the shape of its records."""

    name: str
    shape: tuple[int, ...]
    arguments: Mapping[str, object] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """The same weights at every call."""
        return models.build(
            self.name, input_shape=self.shape, outputs=CLASSES, seed=0, arguments=self.arguments
        ).train()

    def records(self, count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(count, *self.shape, generator=generator)
        return x, torch.randint(CLASSES, (count,), generator=generator)


class Encoder(nn.Module):
    """A small transformer: two layers over 32 vectors of 64 numbers, their mean classified. No dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.layers(x).mean(1))
        return output


MODELS = {
    "mnist-cnn": Subject("paper-cnn", (1, 28, 28)),
    "cifar-cnn": Subject("paper-cnn", (3, 32, 32)),
    "mlp": Subject("mlp", (784,), {"hidden": (512, 256)}),
    "transformer": Subject(f"{__name__}:Encoder", (32, 64)),
    "small-cnn": Subject("small-cnn", (1, 28, 28)),
}
