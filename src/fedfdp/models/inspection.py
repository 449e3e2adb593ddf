"""What can be said of a model under privacy before it is trained: layer by layer, and what a step costs.

Works on made-up records and a copy of the model: it reads no data and changes nothing.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedfdp.models import MODELS, build
from fedfdp.models.learner import frozen_parts
from fedfdp.privacy.clipping import LayerReport, check_model
from fedfdp.privacy.clipping.refused import fault_of

BATCH = 64
IMAGE, TABLE = ((1, 28, 28), 10), ((30,), 2)  # (shape of a record, outputs) by which built-in models are compared


@dataclass(frozen=True)
class Listed:
    """A built-in model: what it is for, and its parameters on images and on a table where it takes them."""

    name: str
    purpose: str
    on_images: int | None
    on_table: int | None


@dataclass(frozen=True)
class Cost:
    """A private step beside a plain one, at a batch of so many records; ∞ where it takes too long to measure."""

    batch: int
    private_seconds: float
    plain_seconds: float
    ratio: float


@dataclass(frozen=True)
class Inspected:
    """A model under privacy. With layers to replace, `cost` is that of the model with them replaced."""

    layers: tuple[LayerReport, ...]
    trained: int  # the dimension of the noise
    frozen: int
    cost: Cost

    @property
    def possible(self) -> bool:
        return all(layer.rule != "refused" for layer in self.layers)


def listed() -> list[Listed]:
    """The built-in models."""

    def size(name: str, shape: tuple[int, ...], outputs: int) -> int | None:
        if name.endswith("-cnn") and len(shape) != 3:
            return None
        return _count(build(name, input_shape=shape, outputs=outputs, seed=0).parameters())

    purposes = {name: (factory.__doc__ or "").split("\n")[0] for name, factory in MODELS.items()}
    return [Listed(name, purpose, size(name, *IMAGE), size(name, *TABLE)) for name, purpose in purposes.items()]


def inspected(
    model: nn.Module,
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    tokens: int | None = None,
    measure: Callable[[nn.Module, Tensor, Tensor], Cost],
) -> Inspected:
    """Which layers can be private and how, and what a private step costs by `measure(model, x, y)`.

    Records are numbers, or with `tokens` token numbers below it.
    """
    model = copy.deepcopy(model).train()
    for part in frozen_parts(model):
        part.eval()
    x, y = _records(input_shape, outputs, tokens)
    refused = {layer.name: layer for layer in check_model(model, x[:3]) if layer.rule == "refused"}
    for name in refused:
        _mend(model, name)
    layers = {layer.name: layer for layer in check_model(model, x[:3])} | refused
    slow = _without_rule(copy.deepcopy(model), x[:3])
    return Inspected(
        layers=tuple(_explained(layers[name], slow) for name, _ in model.named_modules() if name in layers),
        trained=_count(p for p in model.parameters() if p.requires_grad),
        frozen=_count(p for p in model.parameters() if not p.requires_grad),
        cost=measure(model, x, y),
    )


def _records(shape: tuple[int, ...], outputs: int, tokens: int | None) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(0)
    if tokens is None:
        x = torch.randn(BATCH, *shape, generator=chance)
    else:
        x = torch.randint(tokens, (BATCH, *shape), generator=chance)
    return x, torch.arange(BATCH) % outputs


def _without_rule(model: nn.Module, x: Tensor) -> dict[str, str]:
    """The layers that no fast rule covers, with the function they call. Each is found with those before it frozen."""
    found: dict[str, str] = {}
    while reason := next((layer.advice for layer in check_model(model, x) if layer.rule == "fallback"), ""):
        parameter, _, function = reason.partition(" is used by ")
        layer = parameter.rpartition(".")[0]
        if not function or layer in found:
            break
        found[layer] = function.partition(";")[0]
        for own in model.get_submodule(layer).parameters(recurse=False):
            own.requires_grad_(False)
    return found


def _mend(model: nn.Module, name: str) -> None:
    """Puts what the advice says in the place of a layer that cannot be private."""
    layer, (parent, _, last) = model.get_submodule(name), name.rpartition(".")
    fault = fault_of(layer)
    if fault is not None and (mended := fault.mend()) is not layer:
        setattr(model.get_submodule(parent), last, mended)


def _explained(layer: LayerReport, slow: dict[str, str]) -> LayerReport:
    """The report on a layer, with what to do about it if it is not processed the fast way."""
    if layer.rule != "fallback":
        return layer
    if function := slow.get(layer.name):
        return replace(layer, advice=f"no fast rule for {function}; works as it is, record by record: slower")
    if "depend" in layer.advice:
        return replace(layer, advice=f"{layer.advice}; keep records apart in forward")
    if slow:
        culprits = ", ".join(name or "the model itself" for name in slow)
        return replace(layer, advice=f"fast by itself, but not with {culprits} in the model")
    return layer


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
