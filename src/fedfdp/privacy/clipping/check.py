"""What can be said of a model before it is trained: layers that must be refused, and which way each layer is processed.

Never runs a training step and never changes the model.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.fast import Job
from fedfdp.privacy.clipping.groups import as_matrix
from fedfdp.privacy.clipping.modules import named_layers, trained
from fedfdp.privacy.clipping.plan import examine


@dataclass(frozen=True)
class LayerReport:
    """One layer: how its per-sample gradients are had, and what to do if that is not the fast way."""

    name: str
    kind: str
    rule: Literal["fast", "fallback", "refused", "frozen"]
    advice: str = ""


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters to train, by name; raises for a model that per-sample clipping cannot keep private."""
    layers = named_layers(model)
    for name, layer in layers:
        if _suspect(type(layer)) and (fault := _fault(layer)):  # type: ignore[arg-type]
            raise SettingError(f"model.{name}" if name else "model", type(layer).__name__, *fault)
    params = trained(layers)
    if not params:
        raise SettingError("model", type(model).__name__, "has nothing to train", "unfreeze a layer")
    for parameter in params.values():
        if isinstance(parameter, UninitializedParameter):
            raise SettingError("model", type(model).__name__, "has lazy layers without a shape", "run it once first")
        if parameter.dtype not in (torch.float32, torch.float64):
            raise SettingError("model", parameter.dtype, "norms need single or double precision", "call model.float()")
    return params


def check_model(model: nn.Module, x: Tensor) -> list[LayerReport]:
    """A report on every layer with parameters or a fault; `x` is an example batch, two records or more."""
    faults = {name: _fault(layer) for name, layer in model.named_modules()}
    frozen = not any(parameter.requires_grad for parameter in model.parameters())
    reason = "" if frozen or any(faults.values()) else _reason(model, x)
    return list(_reports(model, faults, reason))


def _reports(model: nn.Module, faults: dict[str, tuple[str, str] | None], reason: str) -> Iterator[LayerReport]:
    for name, layer in model.named_modules():
        own = list(layer.parameters(recurse=False))
        kind, fault = type(layer).__name__, faults[name]
        if fault:
            yield LayerReport(name, kind, "refused", "; ".join(fault))
        elif own and not any(parameter.requires_grad for parameter in own):
            yield LayerReport(name, kind, "frozen")
        elif own:
            yield LayerReport(name, kind, "fallback" if reason else "fast", reason)


def _reason(model: nn.Module, x: Tensor) -> str:

    def size(output: Tensor, _: Tensor) -> Tensor:
        return as_matrix(output).square().sum(1)

    plan, _ = examine(Job(model, size, trainable(model)), x, torch.zeros(len(x)))
    return plan.reason


@cache
def _suspect(kind: type) -> bool:
    """Whether layers of this kind can have a fault: asked at every step."""
    return issubclass(kind, (_BatchNorm, _InstanceNorm, nn.Embedding, nn.EmbeddingBag, torch.jit.ScriptModule))


def _fault(layer: nn.Module) -> tuple[str, str] | None:
    if isinstance(layer, torch.jit.ScriptModule):
        return "what TorchScript computes cannot be watched", "give the module that it was made from"
    if isinstance(layer, _InstanceNorm):
        if layer.training and layer.track_running_stats:
            return "keeps running statistics of records past the noise", "set track_running_stats=False"
    elif isinstance(layer, _BatchNorm):
        if layer.training or layer.running_mean is None:
            groups = math.gcd(32, layer.num_features)
            return "mixes the records of a batch", f"replace it by nn.GroupNorm({groups}, {layer.num_features})"
    elif isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
        return "max_norm rescales the rows that records touch, past the noise", "set max_norm=None"
    return None
