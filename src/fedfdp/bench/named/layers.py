"""Layers of torch's own in the smallest models that use them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedfdp.bench.named.base import CLASSES, LENGTH, SIDE, TOKENS, Named

WIDTH = 64


class Recurrent(nn.Module):
    """A recurrent layer over a sequence, its last output classified."""

    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.body = kind(WIDTH, 2 * WIDTH, batch_first=True, **options)  # type: ignore[arg-type]
        self.head = nn.Linear(2 * WIDTH * (2 if self.body.bidirectional else 1), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x)[0][:, -1])
        return found


class Cell(nn.Module):
    """A recurrent cell, called place by place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTMCell(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for place in range(x.shape[1]):
            state = self.body(x[:, place], state)
        assert state is not None
        found: Tensor = self.head(state[0])
        return found


class Crossed(nn.Module):
    """An encoder and a decoder with cross-attention, which reads the record backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(WIDTH, 4, 1, 1, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x, x.flip(1)).mean(1))
        return found


class Pair(nn.Module):
    """A bilinear form of two halves."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Bilinear(128, 128, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.body(*x.chunk(2, 1))))
        return found


def _bag() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(TOKENS, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, CLASSES))


def _slopes() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 256), nn.PReLU(256), nn.Linear(256, 256), nn.PReLU(), nn.Linear(256, CLASSES))


def _root_mean() -> nn.Module:
    blocks = [part for _ in range(2) for part in (nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(32 * WIDTH, CLASSES))


def _instance() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.InstanceNorm2d(32, affine=True), nn.ReLU())
    then = nn.Sequential(nn.Conv2d(32, 64, 3, 2), nn.InstanceNorm2d(64, affine=True), nn.ReLU())
    return nn.Sequential(first, then, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, CLASSES))


def _transposed() -> nn.Module:
    down = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 4), nn.ReLU())
    up = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 4), nn.ReLU(), nn.ConvTranspose2d(16, 8, 3, 2, 1), nn.ReLU())
    return nn.Sequential(down, up, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, CLASSES))


MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "LSTM": ("sequence", lambda: Recurrent(nn.LSTM)),
    "LSTM, two layers, both ways": ("sequence", lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True)),
    "GRU": ("sequence", lambda: Recurrent(nn.GRU)),
    "RNN": ("sequence", lambda: Recurrent(nn.RNN)),
    "LSTM cell": ("sequence", Cell),
    "Transformer, cross-attention": ("sequence", Crossed),
    "RMSNorm": ("sequence", _root_mean),
    "PReLU": ("vector", _slopes),
    "Bilinear": ("vector", Pair),
    "EmbeddingBag": ("text", _bag),
    "InstanceNorm": ("image", _instance),
    "ConvTranspose": ("image", _transposed),
}
LAYERS = [Named("torch", name, make, kind=kind) for name, (kind, make) in MODELS.items()]
__all__ = ["LAYERS", "LENGTH", "SIDE"]
