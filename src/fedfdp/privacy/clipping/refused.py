"""Layers that clipping cannot keep private: why, and what to put in their place. Never runs the model.

A new kind is one function here and one line in `_KINDS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.modules import Layers, named_layers, trained


@dataclass(frozen=True)
class Fault:
    """Why a layer is refused, what to do about it, and a function that does it: it gives the layer to use instead."""

    why: str
    fix: str
    mend: Callable[[], nn.Module]


Judge = Callable[[Any], Fault | None]  # of a layer of one kind


def fault_of(layer: nn.Module) -> Fault | None:
    """Why the layer is refused; None where it is not."""
    kind = type(layer)
    if kind not in _judges:
        _judges[kind] = [judge for refused, judge in _KINDS.items() if issubclass(kind, refused)]
    for judge in _judges[kind]:
        if (fault := judge(layer)) is not None:
            return fault
    return None


def trainable(model: nn.Module, layers: Layers | None = None) -> dict[str, nn.Parameter]:
    """The parameters to train, by name; raises for a model that per-record clipping cannot keep private.

    `layers` are the model's, where they are listed already.
    """
    layers = named_layers(model) if layers is None else layers
    for name, layer in layers:
        if fault := fault_of(layer):
            raise SettingError(f"model.{name}" if name else "model", type(layer).__name__, fault.why, fault.fix)
    params = trained(layers)
    if not params:
        raise SettingError("model", type(model).__name__, "has nothing to train", "unfreeze a layer")
    for parameter in params.values():
        if isinstance(parameter, UninitializedParameter):
            raise SettingError("model", type(model).__name__, "has lazy layers without a shape", "run it once first")
        if parameter.dtype not in (torch.float32, torch.float64):
            raise SettingError("model", parameter.dtype, "norms need single or double precision", "call model.float()")
    return params


def _script(layer: torch.jit.ScriptModule) -> Fault:
    return Fault(
        "what TorchScript computes cannot be watched", "give the module that it was made from", mend=lambda: layer
    )


def _instance_norm(layer: _InstanceNorm) -> Fault | None:
    def mend() -> nn.Module:
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
        return layer

    if not layer.training or not layer.track_running_stats:
        return None
    return Fault("keeps running statistics of records past the noise", "set track_running_stats=False", mend)


def _batch_norm(layer: _BatchNorm) -> Fault | None:
    groups, channels = math.gcd(32, layer.num_features), layer.num_features

    def mend() -> nn.Module:
        return nn.GroupNorm(groups, channels).requires_grad_(all(p.requires_grad for p in layer.parameters()))

    if not layer.training and layer.running_mean is not None:
        return None
    return Fault("mixes the records of a batch", f"replace it by nn.GroupNorm({groups}, {channels})", mend)


def _table(layer: nn.Embedding | nn.EmbeddingBag) -> Fault | None:
    def mend() -> nn.Module:
        layer.max_norm = None
        return layer

    if layer.max_norm is None:
        return None
    return Fault("max_norm rescales the rows that records touch, past the noise", "set max_norm=None", mend)


_KINDS: dict[type[nn.Module], Judge] = {
    torch.jit.ScriptModule: _script,
    _InstanceNorm: _instance_norm,
    _BatchNorm: _batch_norm,
    nn.Embedding: _table,
    nn.EmbeddingBag: _table,
}


_judges: dict[type[nn.Module], list[Judge]] = {}  # of each kind of layer seen so far: every step asks about every layer
