"""The frozen beginning of a pretrained model, computed once for every record and kept, as features are.

Only what runs before the first trained weight, and only if the rest gives the same without it: outputs and gradients
are compared on made-up records first. The model keeps its weights and their names.
"""

import logging
import math
import shutil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.core.trees import Form, Inputs, Tree, call, parts_of, random
from fedfdp.data import Federation
from fedfdp.features.mapped import kept, place
from fedfdp.models.learner import frozen_parts
from fedfdp.models.outputs import unwrapped

log = logging.getLogger("fedfdp")

NAME = "frozen_part"  # the input that takes the place of the frozen beginning
# A beginning is kept if it has this part of the weights that records are multiplied by, and so many of them: the state
# of the model is compared after each record that is mapped, which costs more than small layers do.
WORTH, LEAST = 0.2, 10_000_000
FEW, ROUNDING = 3, 1e-5  # made-up records, and by how much they may differ

Shape = tuple[int, ...]
Skips = dict[str, Shape | None]  # layers, with the shape of what each gives for a record; None: the last of them


def computed_once(model: nn.Module, federation: Federation, output: str | None) -> Federation:
    """The clients with one more input: what the frozen beginning of the model gives, which the model takes from now on.

    The same clients, and the model as it was, where it is no model of transformers or peft, or has no such beginning.
    """
    form, x = federation.form, federation.x
    skips = _skips(model, form, output) if hasattr(model, "save_pretrained") else None
    if skips is None:
        return federation
    last, begun = next(reversed(skips)), Begun(model, next(reversed(skips)))
    shape = _given(begun, random(form, 1, torch.Generator())).shape[1:]
    size, folder = 4 * len(x) * math.prod(shape), place()
    if size > shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free / 2:
        log.warning("the model up to %s is frozen, but there is no room to keep what it gives", last)
        return federation
    log.info("the model up to %s is frozen: computed once, %.0f MB in %s", last, size / 1e6, folder)
    held = kept(begun, x, tuple(shape), np.float32, folder=folder)
    _skip(model, skips, form)
    return federation.with_inputs(_longer(x, held))


def _longer(x: Inputs, held: Tensor) -> Tree:
    names = x.names if isinstance(x, Tree) else None
    return Tree([*parts_of(x), held], None if names is None else [*names, NAME])


class Begun(nn.Module):
    """A model up to the end of one of its layers, in evaluation mode: a map of a record."""

    def __init__(self, model: nn.Module, last: str) -> None:
        super().__init__()
        self.model, self.last = model, last
        self.eval()

    def forward(self, *given: Tensor, **named: Tensor) -> Tensor:
        def stop(_: nn.Module, __: object, found: Tensor) -> None:
            raise _ReachedError(found)

        hook = self.model.get_submodule(self.last).register_forward_hook(stop)
        try:
            self.model(*given, **named)
        except _ReachedError as reached:
            return reached.found
        finally:
            hook.remove()
        raise AssertionError(f"{self.last} is not called")


class _ReachedError(Exception):
    def __init__(self, found: Tensor) -> None:
        super().__init__()
        self.found = found


class _Slot:
    """What was kept for the records of the pass that is going on; None outside of a pass."""

    value: Tensor | None = None


class _Skipped:
    """In place of a frozen layer's `forward`: gives what was kept if it is the last, else anything of its shape."""

    def __init__(self, slot: _Slot, layer: nn.Module, shape: Shape | None) -> None:
        self.slot, self.layer, self.shape = slot, layer, shape

    def __call__(self, *given: Any, **named: Any) -> Any:
        held = self.slot.value
        if held is None:
            return type(self.layer).forward(self.layer, *given, **named)
        if self.shape is None:
            return held
        return held.flatten(1)[:, :1].expand(-1, math.prod(self.shape)).view(-1, *self.shape)


class _Rest:
    """In place of the model's `forward`: takes what was kept as one more input."""

    def __init__(self, slot: _Slot, model: nn.Module, inputs: int) -> None:
        self.slot, self.model, self.inputs = slot, model, inputs

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.slot.value = given[self.inputs] if len(given) > self.inputs else named.pop(NAME, None)
        try:
            return type(self.model).forward(self.model, *given[: self.inputs], **named)
        finally:
            self.slot.value = None


def _skip(model: nn.Module, skips: Skips, form: Form) -> None:
    slot = _Slot()
    for name, shape in skips.items():
        layer = model.get_submodule(name)
        layer.forward = _Skipped(slot, layer, shape)
    model.forward = _Rest(slot, model, len(form))


def _put_back(model: nn.Module, skips: Skips) -> None:
    for layer in (model, *(model.get_submodule(name) for name in skips)):
        del layer.forward


def _skips(model: nn.Module, form: Form, output: str | None) -> Skips | None:
    """The layers of the longest frozen beginning that the rest of the model can do without; None: there is none."""
    modes = [(part, part.training) for part in model.modules()]
    x = random(form, FEW, torch.Generator().manual_seed(0))
    try:
        calls = _calls(model, x)
        least = max(LEAST, WORTH * _multiplied(model))
        for end in range(len(calls), 0, -1):
            names = list(calls)[:end]
            if sum(_multiplied(model.get_submodule(name)) for name in names) < least:
                return None
            skips: Skips = {**{name: calls[name] for name in names}, names[-1]: None}
            if _same_without(model, skips, form, x, output):
                return skips
        return None
    finally:
        for part, mode in modes:
            part.training = mode


def _multiplied(model: nn.Module) -> int:
    """How many weights records are multiplied by: those of all layers but tables."""
    parts = [part for part in model.modules() if not isinstance(part, nn.Embedding)]
    return sum(p.numel() for part in parts for p in part.parameters(recurse=False) if p.dim() > 1)


def _calls(model: nn.Module, x: Inputs) -> dict[str, Shape]:
    """The frozen layers that end before the first trained weight is met, in order, each called once, with a shape."""
    begun: dict[str, int] = {}
    ended: dict[str, tuple[int, Shape | None]] = {}
    often, clock = set[str](), iter(range(1 << 62))
    frozen = {id(part) for part in frozen_parts(model)}
    hooks = []
    for name, part in model.named_modules():

        def enter(_: nn.Module, __: object, name: str = name) -> None:
            if name in begun:
                often.add(name)
            begun.setdefault(name, next(clock))

        def leave(_: nn.Module, __: object, found: object, name: str = name) -> None:
            fits = isinstance(found, Tensor) and found.is_floating_point() and found.dim() > 1 and len(found) == FEW
            ended[name] = next(clock), tuple(found.shape[1:]) if fits else None  # type: ignore[attr-defined]

        hooks.append(part.register_forward_pre_hook(enter))
        if id(part) in frozen and "forward" not in vars(part):
            hooks.append(part.register_forward_hook(leave))
    try:
        _given(model.eval(), x)
    finally:
        for hook in hooks:
            hook.remove()
    first = min(_met(name, begun) for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad)
    return {n: shape for n, (at, shape) in ended.items() if at < first and shape is not None and n not in often}


def _met(parameter: str, begun: dict[str, int]) -> int:
    """When a parameter may be met first: when its layer is called, or the nearest one around it that is."""
    layer = parameter.rpartition(".")[0]
    while layer not in begun:
        layer = layer.rpartition(".")[0]
    return begun[layer]


def _given(model: nn.Module, x: Inputs) -> Any:
    with torch.no_grad():
        return call(model, x)


def _same_without(model: nn.Module, skips: Skips, form: Form, x: Inputs, output: str | None) -> bool:
    """Whether the model gives the same, with the same gradients, without the layers that are skipped."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.data for name, p in trained.items()}
    still, chance = frozen_parts(model), torch.Generator().manual_seed(1)

    def found(records: Inputs) -> list[Tensor]:
        model.train()
        for part in still:
            part.eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # dropout after the beginning draws the same in both
            given = unwrapped(call(model, records), output)
        gradients = torch.autograd.grad(given.square().sum(), list(trained.values()), allow_unused=True)
        return [given, *(torch.zeros(()) if gradient is None else gradient for gradient in gradients)]

    try:
        for name, parameter in trained.items():  # an adapter that starts at zero hides what it is given
            drawn = torch.randn(parameter.shape, generator=chance)
            parameter.data = before[name] + 0.05 * drawn.to(before[name])
        right = found(x)
        held = _given(Begun(model, next(reversed(skips))), x)
        _skip(model, skips, form)
        try:
            rest = found(_longer(x, held))
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # what was skipped was needed
            return False
        finally:
            _put_back(model, skips)
    finally:
        for name, parameter in trained.items():
            parameter.data = before[name]
    return all(
        a.shape == b.shape and bool(((a - b).abs() <= ROUNDING * a.abs().max()).all())
        for a, b in zip(right, rest, strict=True)
    )
