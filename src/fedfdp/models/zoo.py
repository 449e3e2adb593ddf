"""The built-in models. Each is made for the shape of a record and the number of outputs that it is given."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError

MOST_LAYERS = 64
LEAST_IMAGE = 6  # pixels on a side that the small CNN needs


def paper_cnn(*, input_shape: tuple[int, ...], outputs: int, width: float = 1.0) -> nn.Module:
    """The paper's CNN, for images: two 5×5 convolutions and two linear layers; `width` of its channels and units.

    582,026 weights on 28×28×1, 878,538 on 32×32×3.
    """
    channels, height, across = _image(input_shape, least=16, name="paper-cnn")
    features = nn.Sequential(
        nn.Conv2d(channels, _part(32, width), 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(_part(32, width), _part(64, width), 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    size = _width(features, (channels, height, across))
    hidden = _part(512, width)
    return nn.Sequential(*features, nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def small_cnn(*, input_shape: tuple[int, ...], outputs: int, width: float = 1.0) -> nn.Module:
    """A small tanh CNN, for images under noise (Papernot et al., 2021); `width` of its channels and units.

    26,010 weights on 28×28×1. Bounded activations keep gradients small, so clipping takes less away; few weights mean
    little noise.
    """
    channels, height, across = _image(input_shape, least=LEAST_IMAGE, name="small-cnn")
    few, more = _part(16, width), _part(32, width)
    if min(height, across) >= 20:
        first, second = nn.Conv2d(channels, few, 8, stride=2, padding=2), nn.Conv2d(few, more, 4, stride=2)
    else:
        first, second = nn.Conv2d(channels, few, 3, padding=1), nn.Conv2d(few, more, 3)
    pool = nn.MaxPool2d(2, 1)
    features = nn.Sequential(first, nn.Tanh(), pool, second, nn.Tanh(), pool, nn.Flatten())
    size = _width(features, (channels, height, across))
    return nn.Sequential(*features, nn.Linear(size, more), nn.Tanh(), nn.Linear(more, outputs))


def mlp(
    *, input_shape: tuple[int, ...], outputs: int, hidden: tuple[int, ...] = (128,), width: float = 1.0
) -> nn.Module:
    """For tables and small images: linear layers of the given widths, or a part of them, with tanh between them."""
    ok = isinstance(hidden, list | tuple) and len(hidden) <= MOST_LAYERS
    if not ok or not all(isinstance(units, int) and units >= 1 for units in hidden):
        shown = f"{hidden!r:.60}"
        raise SettingError("model.arguments.hidden", shown, f"at most {MOST_LAYERS} widths, whole numbers of 1 or more")
    widths = [math.prod(input_shape), *(_part(units, width) for units in hidden)]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def linear(*, input_shape: tuple[int, ...], outputs: int, zero: bool = False) -> nn.Module:
    """For tables and features: logistic regression, or linear regression with one output.

    With `zero` all weights start at 0: under noise there is nothing to unlearn.
    """
    layer = nn.Linear(math.prod(input_shape), outputs)
    if zero:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def head_cnn(*, input_shape: tuple[int, ...], outputs: int, channels: int = 32, standardise: bool = False) -> nn.Module:
    """A small convolutional head, for features that are images still: one 3×3 convolution, group norm, linear from 0.

    With `standardise` each filter has mean 0 and variance 1 over its weights (Qiao et al., 2019).
    """
    inputs, height, across = _image(input_shape, least=2, name="head-cnn")
    if not isinstance(channels, int) or channels < 4 or channels % 4:
        raise SettingError("model.arguments.channels", channels, "a multiple of 4", "32 is usual")
    kind = StandardisedConv2d if standardise else nn.Conv2d
    body = [kind(inputs, channels, 3, padding=1), nn.GroupNorm(channels // 4, channels), nn.Tanh(), nn.MaxPool2d(2)]
    last = nn.Linear(channels * (height // 2) * (across // 2), outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*body, nn.Flatten(), last)


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose filters have mean 0, and variance 1 / their size, whatever the weights are."""

    def forward(self, x: Tensor) -> Tensor:
        """The convolution with the standardised filters."""
        flat = self.weight.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, keepdim=True) * flat.shape[1] + 1e-4).sqrt()
        convolved: Tensor = self._conv_forward(x, flat.reshape(self.weight.shape), self.bias)
        return convolved


def _part(units: int, width: float) -> int:
    """So many of the full model's channels or units; the leading ones, since layers of a narrower model nest in it."""
    if not isinstance(width, int | float) or not 0 < width <= 1:
        raise SettingError("model.arguments.width", width, "above 0, at most 1", "0.5 is half of the channels")
    return max(1, round(units * width))


def _image(shape: tuple[int, ...], *, least: int, name: str) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < least:
        allowed = f"needs images of at least {least}×{least}, the records have shape {shape}"
        raise SettingError("model.name", name, allowed, "take mlp or linear")
    return shape[0], shape[1], shape[2]


def _width(features: nn.Module, shape: tuple[int, ...]) -> int:
    with torch.inference_mode():
        return int(features(torch.zeros(1, *shape)).shape[1])
