"""Per-record gradients by layer rules: one forward pass, one backward pass to the layers' outputs, and the rules.

Only along a pass that was proven. Every call is compared with the proven pass, and the pass ends where it differs.
Which rows of a call belong to which record comes from the proof, never from the numbers.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node, disable_saved_tensors_hooks

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.job import Job, one_loss_per_record
from fedfdp.privacy.clipping.layers.registry import RULES
from fedfdp.privacy.clipping.layers.rule import Call, Layout
from fedfdp.privacy.clipping.proof.calls import Program, UnsupportedError
from fedfdp.privacy.clipping.proof.follower import Follower
from fedfdp.privacy.clipping.proof.places import Mixed, Place, Rows
from fedfdp.privacy.clipping.proof.prove import prove
from fedfdp.privacy.clipping.proof.tracer import Tracer
from fedfdp.privacy.clipping.proof.watcher import Watcher
from fedfdp.privacy.clipping.tape import Tape
from fedfdp.privacy.clipping.undo import changes_undone

Calls = list[Call[Any]]


@dataclass(frozen=True)
class Proven:
    """A pass in which no record meets another: its calls, and how many rows of each layer's input precede a record."""

    program: Program
    before: tuple[int, ...]
    channels_last: bool  # whether images have their channels innermost
    held: int  # numbers that the calls held between the passes, over all records that it was proven with


def rules_pass(job: Job, x: Tensor, y: Tensor, proven: Proven) -> tuple[Tensor, list[Contribution]]:
    """Losses and contributions of a batch; UnsupportedError if the pass is not the proven one."""
    with changes_undone(job.layers):
        losses, calls = _followed(job, x, y, proven)
        grads = output_gradients(losses, calls)
    return losses.detach(), contributions_of(calls, grads, proven.before, x.shape[0])


def rules_losses(job: Job, x: Tensor, y: Tensor, proven: Proven) -> Tensor:
    """The losses alone, of a pass that is the proven one."""
    with changes_undone(job.layers):
        losses, _ = _followed(job, x, y, proven)
    return losses.detach()


def proven_pass(job: Job, x: Tensor, y: Tensor, *, channels_last: bool) -> Proven:
    """The pass over records like these, proven; UnsupportedError if it cannot be."""

    def traced(count: int) -> tuple[Tensor, Calls, Tracer]:
        inputs = (x[:count].detach(), y[:count].detach())
        with changes_undone(job.layers):
            watch = Tracer(job.own, job.trained, inputs)
            losses, calls = taped(job, *inputs, watch, channels_last=channels_last)
        return losses, calls, watch

    (losses, calls, one), (_, _, other) = traced(len(x)), traced(len(x) - 1)
    program, places = prove(one, other, (len(x), len(x) - 1), inputs=2)
    place = places.get(one.reference(losses))
    if isinstance(place, Mixed):
        raise UnsupportedError(place.reason)
    if place != Rows(0, 1, 1):
        raise UnsupportedError("the losses do not depend on the records one by one")
    before = tuple(_rows_before(call, places.get(call.source)) for call in calls)
    return Proven(program, before, channels_last, held=sum(call.held for call in calls))


def _rows_before(call: Call[Any], place: Place) -> int:
    """How many rows of a call's input come before the dimension of the records."""
    name = call.names[0]
    if isinstance(place, Mixed):
        raise UnsupportedError(f"{name}: {place.reason}")
    if not isinstance(place, Rows):
        raise UnsupportedError(f"{name}: its input does not depend on the records")
    if place.dim >= call.rule.leading(call.input, call.options):
        raise UnsupportedError(f"{name}: records are where one of its own dimensions is")
    return math.prod(call.input.shape[: place.dim]) * place.before


def _followed(job: Job, x: Tensor, y: Tensor, proven: Proven) -> tuple[Tensor, Calls]:
    """A pass that is compared with the proven one."""
    inputs = (x.detach(), y.detach())
    watch = Follower(job.own, job.trained, inputs, proven.program, x.shape[0])
    losses, calls = taped(job, *inputs, watch, channels_last=proven.channels_last)
    watch.ended()
    return losses, calls


def taped(job: Job, x: Tensor, y: Tensor, watch: Watcher, *, channels_last: bool) -> tuple[Tensor, Calls]:
    """The losses of one forward pass whose calls `watch` is told of, and the calls on trained parameters."""
    batch, tape = x.shape[0], Tape(RULES, watch, channels_last=channels_last)
    with torch.enable_grad(), disable_saved_tensors_hooks("hooks on saved tensors are not watched"), tape:
        losses = one_loss_per_record(job.loss_fn(job.model(x), y), batch)
    if tape.ended is not None:
        raise tape.ended
    if any(call.input._version != call.version for call in tape.calls):
        raise UnsupportedError("a layer's input is changed in place afterwards")
    _check_backward(losses, job)
    return losses, tape.calls


def _check_backward(losses: Tensor, job: Job) -> None:
    """Raises unless the backward pass is all torch's own and reaches no parameter past the tape."""
    seen: set[Node] = set()
    ahead: list[Node | None] = [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if issubclass(type(node), BackwardCFunction):
            raise UnsupportedError(f"{type(node).__name__} has a backward pass of its own, which is not watched")
        following = node.next_functions
        if not following and (name := job.trained.get(id(getattr(node, "variable", None)))) is not None:
            raise UnsupportedError(f"{name} is used where it is not seen")
        ahead.extend([function for function, _ in following])


def output_gradients(losses: Tensor, calls: Calls) -> tuple[Tensor | None, ...]:
    """The gradient of the summed loss at each call's output; None where the loss does not depend on it."""
    if not calls or not losses.requires_grad:
        return (None,) * len(calls)
    edges = [call.edge for call in calls]
    return torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)


def contributions_of(
    calls: Calls, grads: tuple[Tensor | None, ...], before: tuple[int, ...], batch: int
) -> list[Contribution]:
    """Every call's contribution. A parameter of several calls has its gradients added before its norm is taken."""
    live = [(c, g, Layout(batch, rows)) for c, g, rows in zip(calls, grads, before, strict=True) if g is not None]
    uses = Counter(name for call, _, _ in live for name in call.names)
    found: list[Contribution] = []
    shared: dict[str, Tensor] = {}
    for call, grad, layout in live:
        if max(uses[name] for name in call.names) == 1:
            found += call.rule.contributions(call, grad, layout)
            continue
        for name, gradients in call.rule.per_record(call, grad, layout).items():
            shared[name] = shared[name] + gradients if name in shared else gradients
    return found + [Stored(name, gradients) for name, gradients in shared.items()]
