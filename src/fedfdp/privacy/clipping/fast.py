"""One forward pass, one backward pass for the layers' output gradients only, and the rules for the rest.

Trusts the layout it is given: which rows of a call belong to which record is found out in plan.py, never guessed here.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import is_not

import torch
from torch import Tensor, nn

from fedfdp.errors import SettingError
from fedfdp.privacy.clipping.broadcast import Gain, Shift
from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.convolution import Convolution
from fedfdp.privacy.clipping.layers import Layers, named_layers
from fedfdp.privacy.clipping.rules import Embedding, GroupNorm, LayerNorm, Linear
from fedfdp.privacy.clipping.tape import Call, Rule, Tape, UnsupportedError

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


@dataclass(frozen=True)
class Layout:
    """A call of the pass: its rule, its parameters, its rows for one record, how many of them come before the batch."""

    rule: str
    weight: str | None
    bias: str | None
    rows: int
    before: int

    def fits(self, call: Call, batch: int) -> bool:
        same = (self.rule, self.weight, self.bias) == (type(call.rule).__name__, call.weight, call.bias)
        return same and call.rows == self.rows * batch


# What most of a layer's attributes are: to ask of each whether it is a tensor takes longer than all the rest.
_NEVER_A_TENSOR = frozenset({bool, int, float, str, type(None), tuple, list, set, dict, OrderedDict})


@contextmanager
def buffers_kept(layers: Layers) -> Iterator[None]:
    """Whatever a forward pass does to buffers, or to anything else that layers keep beside their weights, is undone.

    It would carry records past the noise, or from one record's gradient into another's.
    """
    places = [place for _, layer in layers for place in (vars(layer), layer._buffers)]
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
                place.clear()
                place.update(values)


def one_loss_a_record(losses: Tensor, batch: int) -> Tensor:
    """The losses, if there is one for each record."""
    if losses.shape != (batch,):
        given = f"shape {tuple(losses.shape)} for {batch} records"
        raise SettingError("loss_fn", given, "must give one loss a record, shape (B,)", "use reduction='none'")
    return losses


def taped(job: Job, x: Tensor, y: Tensor, *, images_last: bool) -> tuple[Tensor, list[Call]]:
    """The losses and the calls that used parameters."""
    tape = Tape(job.params, RULES, images_last=images_last)
    with torch.enable_grad(), tape:
        losses = one_loss_a_record(job.loss_fn(job.model(x.detach()), y), x.shape[0])
    if any(call.input._version != call.version for call in tape.calls):
        raise UnsupportedError("a layer's input is changed in place afterwards")
    return losses, tape.calls


def output_gradients(losses: Tensor, calls: list[Call]) -> tuple[Tensor | None, ...]:
    """The gradient of the summed loss at each call's output; None where the loss does not depend on it."""
    if not calls or not losses.requires_grad:
        return (None,) * len(calls)
    edges = [call.edge for call in calls]
    return torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)


def collect(
    calls: list[Call], grads: tuple[Tensor | None, ...], layouts: tuple[Layout, ...], batch: int
) -> list[Contribution]:
    """Every call's contribution; a parameter used more than once has its gradients added before its norm is taken."""
    live = [(c, g, at.before) for c, g, at in zip(calls, grads, layouts, strict=True) if g is not None]
    uses = Counter(name for call, _, _ in live for name in (call.weight, call.bias) if name is not None)
    found: list[Contribution] = []
    shared: dict[str, Tensor] = {}
    for call, grad, before in live:
        if max(uses[name] for name in (call.weight, call.bias) if name is not None) == 1:
            found += call.rule.contributions(call, grad, batch, before)
            continue
        for name, rows in call.rule.per_sample(call, grad, batch, before).items():
            shared[name] = shared[name] + rows if name in shared else rows
    return found + [Stored(name, rows) for name, rows in shared.items()]


def fast_pass(
    job: Job, x: Tensor, y: Tensor, layouts: tuple[Layout, ...], *, images_last: bool
) -> tuple[Tensor, list[Contribution]]:
    """Losses and contributions of a batch, or UnsupportedError if the pass is not the one the layouts describe."""
    batch = x.shape[0]
    with buffers_kept(job.layers):
        losses, calls = taped(job, x, y, images_last=images_last)
        fitting = (at.fits(call, batch) for at, call in zip(layouts, calls, strict=False))
        if len(calls) != len(layouts) or not all(fitting):
            raise UnsupportedError("the model's calls differ from those examined")
        grads = output_gradients(losses, calls)
    return losses.detach(), collect(calls, grads, layouts, batch)
