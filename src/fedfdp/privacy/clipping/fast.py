"""One forward pass, one backward pass for the layers' output gradients only, and the rules for the rest.

Only for a pass that was proven (plan.py): every call of it is compared with the proven one, and the pass ends where it
differs. Which rows of a call belong to which record comes from the proof, never from the numbers.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import is_not
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import disable_saved_tensors_hooks

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.layers.broadcast import Gain, Shift
from fedfdp.privacy.clipping.layers.convolution import Convolution
from fedfdp.privacy.clipping.layers.rules import Embedding, GroupNorm, LayerNorm, Linear
from fedfdp.privacy.clipping.modules import Layers, named_layers
from fedfdp.privacy.clipping.tape import Call, Rule, Tape
from fedfdp.privacy.clipping.watch import Follower, Program, Recorder, UnsupportedError

LossFn = Callable[..., Tensor]
RULES: dict[object, Rule] = {
    function: rule
    for rule in (Linear(), Convolution(), Embedding(), LayerNorm(), GroupNorm(), Shift(), Gain())
    for function in rule.functions
}


@dataclass(frozen=True)
class Job:
    """Whose gradients are wanted: a model, the loss of a record, and the parameters that are trained."""

    model: nn.Module
    loss_fn: LossFn
    params: Mapping[str, Tensor]

    @cached_property
    def layers(self) -> Layers:
        return named_layers(self.model)

    @cached_property
    def own(self) -> dict[int, tuple[str, Tensor]]:
        """Every parameter and buffer with its name, by its id."""
        found: dict[int, tuple[str, Tensor]] = {}
        for name, layer in self.layers:
            for kind in (layer._parameters, layer._buffers):
                for own, tensor in kind.items():
                    if tensor is not None:
                        found.setdefault(id(tensor), (f"{name}.{own}", tensor))
        return found

    @cached_property
    def trained(self) -> dict[int, str]:
        """The names of what is trained, by id."""
        return {id(parameter): name for name, parameter in self.params.items()}


@dataclass(frozen=True)
class Proven:
    """A pass in which no record meets another: its calls, and the rows of each input that come before a record."""

    program: Program
    before: tuple[int, ...]
    images_last: bool


# What most of a layer's attributes are: to ask of each whether it is a tensor takes longer than all the rest.
_NEVER_A_TENSOR = frozenset({bool, int, float, str, type(None), tuple, list, set, dict, OrderedDict})
_LEFT = frozenset({bool, str, type(None), tuple, list, set, dict, OrderedDict})


@contextmanager
def buffers_kept(layers: Layers, *, modules: bool = True) -> Iterator[None]:
    """Whatever a forward pass does to buffers, to tensors and numbers beside them, and to the layers within is undone.

    It would carry records past the noise, or from one record's gradient into another's. What a layer sets up at its
    first pass (hooks, and the flag that says so) is left.
    """
    places: list[dict[str, Any]] = [place for _, layer in layers for place in (vars(layer), layer._buffers)]
    if modules:
        places += [layer._modules for _, layer in layers if layer._modules]
    kept = [(place, place.copy()) for place in places]
    unknown = [value for _, values in kept for value in values.values() if type(value) not in _NEVER_A_TENSOR]
    tensors = [(t, t._version, t.clone()) for t in unknown if isinstance(t, Tensor)]
    try:
        yield
    finally:
        for tensor, version, copy in tensors:
            if tensor._version != version or not torch.equal(tensor, copy):  # `.data` leaves the version as it was
                tensor.detach().copy_(copy)
        for place, values in kept:
            if place.keys() != values.keys() or any(map(is_not, place.values(), values.values())):
                _put_back(place, values)


def _put_back(place: dict[str, Any], values: dict[str, Any]) -> None:
    for name in [name for name, value in place.items() if name not in values and type(value) not in _LEFT]:
        del place[name]
    for name, value in values.items():
        if place.get(name, place) is not value and not {type(value), type(place.get(name))} <= _LEFT:
            place[name] = value


def one_loss_a_record(losses: Tensor, batch: int) -> Tensor:
    """The losses, if there is one for each record."""
    if losses.shape != (batch,):
        given = f"shape {tuple(losses.shape)} for {batch} records"
        raise SettingError("loss_fn", given, "must give one loss a record, shape (B,)", "use reduction='none'")
    return losses


def taped(
    job: Job, x: Tensor, y: Tensor, *, images_last: bool, program: Program | None = None
) -> tuple[Tensor, list[Call], Recorder | Follower]:
    """The losses, the calls that used parameters, and the watcher: a Follower of the program if there is one."""
    batch, x, y = x.shape[0], x.detach(), y.detach()
    watch: Recorder | Follower
    if program is None:
        watch = Recorder(job.own, job.trained, (x, y))
    else:
        watch = Follower(job.own, job.trained, (x, y), program, batch)
    tape = Tape(RULES, watch, images_last=images_last)
    with torch.enable_grad(), disable_saved_tensors_hooks("hooks on saved tensors are not watched"), tape:
        losses = one_loss_a_record(job.loss_fn(job.model(x), y), batch)
    if tape.ended is not None:
        raise tape.ended
    if isinstance(watch, Follower):
        watch.ended()
    if any(call.input._version != call.version for call in tape.calls):
        raise UnsupportedError("a layer's input is changed in place afterwards")
    _check_backward(losses, job)
    return losses, tape.calls, watch


def _check_backward(losses: Tensor, job: Job) -> None:
    """Raises unless the backward pass is all torch's own and reaches no parameter past the tape."""
    seen: set[Any] = set()
    ahead: list[Any] = [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            raise UnsupportedError(f"{type(node).__name__} has a backward pass of its own, which is not watched")
        following = node.next_functions
        if not following and id(getattr(node, "variable", None)) in job.trained:
            raise UnsupportedError(f"{job.trained[id(node.variable)]} is used where it is not seen")
        ahead.extend([function for function, _ in following])


def output_gradients(losses: Tensor, calls: list[Call]) -> tuple[Tensor | None, ...]:
    """The gradient of the summed loss at each call's output; None where the loss does not depend on it."""
    if not calls or not losses.requires_grad:
        return (None,) * len(calls)
    edges = [call.edge for call in calls]
    return torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)


def collect(
    calls: list[Call], grads: tuple[Tensor | None, ...], before: tuple[int, ...], batch: int
) -> list[Contribution]:
    """Every call's contribution; a parameter used more than once has its gradients added before its norm is taken."""
    live = [(c, g, rows) for c, g, rows in zip(calls, grads, before, strict=True) if g is not None]
    uses = Counter(name for call, _, _ in live for name in (call.weight, call.bias) if name is not None)
    found: list[Contribution] = []
    shared: dict[str, Tensor] = {}
    for call, grad, rows in live:
        if max(uses[name] for name in (call.weight, call.bias) if name is not None) == 1:
            found += call.rule.contributions(call, grad, batch, rows)
            continue
        for name, gradients in call.rule.per_sample(call, grad, batch, rows).items():
            shared[name] = shared[name] + gradients if name in shared else gradients
    return found + [Stored(name, gradients) for name, gradients in shared.items()]


def fast_pass(job: Job, x: Tensor, y: Tensor, proven: Proven) -> tuple[Tensor, list[Contribution]]:
    """Losses and contributions of a batch, or UnsupportedError if the pass is not the proven one."""
    with buffers_kept(job.layers):
        losses, calls, _ = taped(job, x, y, images_last=proven.images_last, program=proven.program)
        grads = output_gradients(losses, calls)
    return losses.detach(), collect(calls, grads, proven.before, x.shape[0])


def fast_losses(job: Job, x: Tensor, y: Tensor, proven: Proven) -> Tensor:
    """The losses alone, of a pass that is the proven one."""
    with buffers_kept(job.layers):
        losses, _, _ = taped(job, x, y, images_last=proven.images_last, program=proven.program)
    return losses.detach()
