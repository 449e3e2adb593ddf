"""What privacy makes of a model, said before it is trained: layer by layer, and what a step costs.

Works on made-up records and a copy of the model: it reads no data and changes nothing.
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedfdp.models import MODELS, build
from fedfdp.models.learner import frozen_parts
from fedfdp.privacy.clipping import LayerReport, check_model

BATCH = 64
IMAGE, TABLE = ((1, 28, 28), 10), ((30,), 2)  # (shape of a record, outputs) by which built-in models are compared
SECONDS = 0.7  # for the private step, and as long for the plain one


@dataclass(frozen=True)
class Listed:
    """A built-in model: what it is for, and its parameters on images and on a table where it takes them."""

    name: str
    purpose: str
    on_images: int | None
    on_table: int | None


@dataclass(frozen=True)
class Cost:
    """A private step beside a plain one, at a batch of so many records."""

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


def inspected(model: nn.Module, *, input_shape: tuple[int, ...], outputs: int, tokens: int | None = None) -> Inspected:
    """Which layers can be private and how, and the measured cost of a private step.

    Records are numbers, or with `tokens` token numbers below it.
    """
    model = copy.deepcopy(model).train()
    for part in frozen_parts(model):
        part.eval()
    x, y = _records(input_shape, outputs, tokens)
    refused = {layer.name: layer for layer in check_model(model, x[:3]) if layer.rule == "refused"}
    for name in refused:
        _replace(model, name)
    layers = {layer.name: layer for layer in check_model(model, x[:3])} | refused
    slow = _without_rule(copy.deepcopy(model), x[:3])
    return Inspected(
        layers=tuple(_explained(layers[name], slow) for name, _ in model.named_modules() if name in layers),
        trained=_count(p for p in model.parameters() if p.requires_grad),
        frozen=_count(p for p in model.parameters() if not p.requires_grad),
        cost=_cost(model, x, y),
    )


def _records(shape: tuple[int, ...], outputs: int, tokens: int | None) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(0)
    if tokens is None:
        x = torch.randn(BATCH, *shape, generator=chance)
    else:
        x = torch.randint(tokens, (BATCH, *shape), generator=chance)
    return x, torch.arange(BATCH) % outputs


def _without_rule(model: nn.Module, x: Tensor) -> dict[str, str]:
    """The layers that no fast rule covers and the function they call, each found with those before it frozen."""
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


def _replace(model: nn.Module, name: str) -> None:
    """Puts what the advice says in the place of a layer that cannot be private."""
    layer = model.get_submodule(name)
    if isinstance(layer, _InstanceNorm):
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    elif isinstance(layer, _BatchNorm):
        groups = nn.GroupNorm(math.gcd(32, layer.num_features), layer.num_features)
        groups.requires_grad_(all(p.requires_grad for p in layer.parameters()))
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, groups)
    else:
        layer.max_norm = None  # type: ignore[assignment]  # an embedding


def _explained(layer: LayerReport, slow: dict[str, str]) -> LayerReport:
    """With what to do about a layer that is not processed the fast way."""
    if layer.rule != "fallback":
        return layer
    if function := slow.get(layer.name):
        return replace(layer, advice=f"no fast rule for {function}; {_REPLACE.get(function, _ANY)}")
    if "depend" in layer.advice:
        return replace(layer, advice=f"{layer.advice}; keep records apart in forward")
    if slow:
        culprits = ", ".join(name or "the model itself" for name in slow)
        return replace(layer, advice=f"fast by itself, but not with {culprits} in the model")
    return layer


_ANY = "works as it is, record by record: slower"
_REPLACE = {
    "prelu": "replace it by nn.LeakyReLU()",
    "rms_norm": "replace it by nn.LayerNorm",
    "bilinear": "replace it by nn.Linear of the outer product",
    "matmul": "use nn.Linear, or functional.linear, instead of @",
}


def _cost(model: nn.Module, x: Tensor, y: Tensor) -> Cost:
    from fedfdp.bench.measure import interleaved
    from fedfdp.bench.peers import Ours, Plain, Setting, Task

    tasks = [Task(copy.deepcopy(model), x, y, Setting()) for _ in range(2)]
    timed = interleaved({"plain": Plain(tasks[0]), "ours": Ours(tasks[1])}, seconds=SECONDS)
    ours = timed.get("ours")
    private = ours.seconds if ours else math.inf
    return Cost(len(x), private, timed["plain"].seconds, ours.ratio if ours else math.inf)


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
