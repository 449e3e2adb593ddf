"""The built-in models. Each is made for the shape of a record and the number of outputs that it is given."""

import math
from itertools import pairwise

import torch
from torch import nn

from fedfdp.core.errors import SettingError

MOST_LAYERS = 64
LEAST_IMAGE = 6  # pixels on a side that the small CNN needs


def paper_cnn(*, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The paper's CNN, for images: two 5×5 convolutions and two linear layers.

    582,026 weights on 28×28×1, 878,538 on 32×32×3.
    """
    channels, height, width = _image(input_shape, least=16, name="paper-cnn")
    features = nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    size = _width(features, (channels, height, width))
    return nn.Sequential(*features, nn.Linear(size, 512), nn.ReLU(), nn.Linear(512, outputs))


def small_cnn(*, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small tanh CNN, for images under noise (Papernot et al., 2021).

    26,010 weights on 28×28×1. Bounded activations keep gradients small, so clipping takes less away; few weights mean
    little noise.
    """
    channels, height, width = _image(input_shape, least=LEAST_IMAGE, name="small-cnn")
    if min(height, width) >= 20:
        first, second = nn.Conv2d(channels, 16, 8, stride=2, padding=2), nn.Conv2d(16, 32, 4, stride=2)
    else:
        first, second = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(16, 32, 3)
    pool = nn.MaxPool2d(2, 1)
    features = nn.Sequential(first, nn.Tanh(), pool, second, nn.Tanh(), pool, nn.Flatten())
    size = _width(features, (channels, height, width))
    return nn.Sequential(*features, nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, outputs))


def mlp(*, input_shape: tuple[int, ...], outputs: int, hidden: tuple[int, ...] = (128,)) -> nn.Module:
    """For tables and small images: linear layers of the given widths with tanh between them."""
    ok = isinstance(hidden, list | tuple) and len(hidden) <= MOST_LAYERS
    if not ok or not all(isinstance(width, int) and width >= 1 for width in hidden):
        shown = f"{hidden!r:.60}"
        raise SettingError("model.arguments.hidden", shown, f"at most {MOST_LAYERS} widths, whole numbers of 1 or more")
    widths = [math.prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def linear(*, input_shape: tuple[int, ...], outputs: int, zeros: bool = False) -> nn.Module:
    """For tables: logistic regression, or linear regression with one output; with `zeros`, all weights start at 0."""
    layer = nn.Linear(math.prod(input_shape), outputs)
    if zeros:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def _image(shape: tuple[int, ...], *, least: int, name: str) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < least:
        allowed = f"needs images of at least {least}×{least}, the records have shape {shape}"
        raise SettingError("model.name", name, allowed, "take mlp or linear")
    return shape[0], shape[1], shape[2]


def _width(features: nn.Module, shape: tuple[int, ...]) -> int:
    with torch.inference_mode():
        return int(features(torch.zeros(1, *shape)).shape[1])
