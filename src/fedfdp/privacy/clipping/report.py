"""What can be said of a model's layers before it is trained: which way each is processed, and which are refused.

Never runs a training step and never changes the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedfdp.core.trees import Inputs
from fedfdp.privacy.clipping.groups import as_matrix
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.plan import examine
from fedfdp.privacy.clipping.refused import Fault, fault_of, trainable


@dataclass(frozen=True)
class LayerReport:
    """One layer: how its per-record gradients are computed, and what to do if that is not the fast way."""

    name: str
    kind: str
    rule: Literal["fast", "fallback", "refused", "frozen"]
    advice: str = ""


def check_model(model: nn.Module, x: Inputs) -> list[LayerReport]:
    """A report on every layer with parameters or a fault; `x` is an example batch, two records or more."""
    faults = {name: fault_of(layer) for name, layer in model.named_modules()}
    frozen = not any(parameter.requires_grad for parameter in model.parameters())
    reason = "" if frozen or any(faults.values()) else _reason(model, x)
    return list(_reports(model, faults, reason))


def _reports(model: nn.Module, faults: dict[str, Fault | None], reason: str) -> Iterator[LayerReport]:
    for name, layer in model.named_modules():
        own = list(layer.parameters(recurse=False))
        kind, fault = type(layer).__name__, faults[name]
        if fault:
            yield LayerReport(name, kind, "refused", f"{fault.why}; {fault.fix}")
        elif own and not any(parameter.requires_grad for parameter in own):
            yield LayerReport(name, kind, "frozen")
        elif own:
            yield LayerReport(name, kind, "fallback" if reason else "fast", reason)


def _reason(model: nn.Module, x: Inputs) -> str:
    """Why the model does not go by the rules; empty where it does. The loss is the squared norm of the output."""

    def size(output: Tensor, _: Tensor) -> Tensor:
        return as_matrix(output).square().sum(1)

    plan, _ = examine(Job(model, size, trainable(model)), x, torch.zeros(len(x)))
    return plan.reason
