"""Per-record gradients by layer rules: one forward pass, one backward pass to the layers' outputs, and the rules.

Only along a pass that was proven. Every call is compared with the proven pass, and the pass ends where it differs.
Which rows of a call belong to which record comes from the proof, never from the numbers.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node, disable_saved_tensors_hooks

from fedfdp.core.trees import Inputs, call, parts_of
from fedfdp.privacy.clipping.contributions import Contribution
from fedfdp.privacy.clipping.draws import SEEDED, Draws
from fedfdp.privacy.clipping.inlined import has_own_backward, inlined
from fedfdp.privacy.clipping.job import Job, one_loss_per_record
from fedfdp.privacy.clipping.layers.kept import Kept
from fedfdp.privacy.clipping.layers.registry import RULES
from fedfdp.privacy.clipping.proof.calls import OtherPassError, Program, UnsupportedError
from fedfdp.privacy.clipping.proof.follower import Follower
from fedfdp.privacy.clipping.proof.places import Mixed, Reference, Rows
from fedfdp.privacy.clipping.proof.prove import prove
from fedfdp.privacy.clipping.proof.tracer import Tracer
from fedfdp.privacy.clipping.proof.watcher import Watcher
from fedfdp.privacy.clipping.pulled_back import contributions_of
from fedfdp.privacy.clipping.tape import Tape
from fedfdp.privacy.clipping.undo import changes_undone

Passed = tuple[Tensor, list[Contribution]]


@dataclass(frozen=True)
class Proven:
    """A pass in which no record meets another: its calls, and where in them parameters meet the records."""

    program: Program
    losses: Reference  # which of its values are the losses: which one is returned shows in no call
    channels_last: bool  # whether images have their channels innermost


def rules_pass(job: Job, x: Inputs, y: Tensor, proven: Proven) -> Passed:
    """Losses and contributions of a batch; UnsupportedError if the pass is not the proven one."""
    return measured_pass(job, x, y, proven)[0]


def measured_pass(job: Job, x: Inputs, y: Tensor, proven: Proven) -> tuple[Passed, int]:
    """The same, and how many numbers were in memory for the records between the passes."""
    with changes_undone(job.layers):
        losses, tape = _followed(job, x, y, proven)
        grads = output_gradients(losses, tape.calls)
    found = contributions_of(tape, grads, x.shape[0])
    held = sum(call.held for call in tape.calls) + sum(contribution.held for contribution in found)
    return (losses.detach(), found), held


def rules_losses(job: Job, x: Inputs, y: Tensor, proven: Proven) -> Tensor:
    """The losses alone, of a pass that is the proven one."""
    with changes_undone(job.layers):
        losses, _ = _followed(job, x, y, proven)
    return losses.detach()


def proven_pass(job: Job, x: Inputs, y: Tensor, *, channels_last: bool) -> Proven:
    """The pass over records like these, proven; UnsupportedError if it cannot be."""

    trials: list[Callable[[], None]] = []

    def traced(count: int) -> tuple[Tensor, Tracer]:
        given, targets = x[:count].detach().clone(), y[:count].detach().clone()
        with changes_undone(job.layers):
            watch = Tracer(job.own, job.trained, (*parts_of(given), targets))
            losses, tape = taped(job, given, targets, watch, channels_last=channels_last)
        trials[:] = tape.trials
        return losses, watch

    (losses, one), (_, other) = traced(len(x)), traced(len(x) - 1)
    program, places = prove(one, other, (len(x), len(x) - 1), inputs=len(parts_of(x)) + 1)
    for trial in trials:
        trial()
    returned = one.reference(losses)
    place = places.get(returned)
    if isinstance(place, Mixed):
        raise UnsupportedError(place.reason)
    if place != Rows(0, 1, 1):
        raise UnsupportedError("the losses do not depend on the records one by one")
    return Proven(program, returned, channels_last)


def _followed(job: Job, x: Inputs, y: Tensor, proven: Proven) -> tuple[Tensor, Tape]:
    """A pass that is compared with the proven one."""
    given, targets = x.detach(), y.detach()
    if proven.program.overwrites:
        given, targets = given.clone(), targets.clone()
    watch = Follower(job.own, job.trained, (*parts_of(given), targets), proven.program, x.shape[0])
    losses, tape = taped(job, given, targets, watch, channels_last=proven.channels_last)
    watch.ended()
    if watch.known(losses) != proven.losses:
        raise OtherPassError("other losses are returned than when it was examined")
    if not all(call.unchanged for call in tape.calls):
        raise UnsupportedError("a layer's input is changed in place afterwards")
    _check_backward(losses, job, tape)
    return losses, tape


def taped(job: Job, x: Inputs, y: Tensor, watch: Watcher, *, channels_last: bool) -> tuple[Tensor, Tape]:
    """The losses of one forward pass whose calls `watch` is told of, and the tape with the calls on parameters."""
    draws = Draws(x.device) if watch.draws else None
    batch, tape = x.shape[0], Tape(RULES, watch, draws, channels_last=channels_last)
    no_hooks = disable_saved_tensors_hooks("hooks on saved tensors are not watched")
    with draws or nullcontext(), torch.enable_grad(), no_hooks, inlined(tape.trials), tape:
        losses = one_loss_per_record(job.loss_fn(call(job.model, x), y), batch)
    if tape.ended is not None:
        raise tape.ended
    if draws is not None and not draws.left_alone:
        raise UnsupportedError(SEEDED)
    return losses, tape


def _check_backward(losses: Tensor, job: Job, tape: Tape) -> None:
    """Raises unless the backward pass is all torch's own and reaches no parameter past the tape."""
    seen: set[Node] = set()
    ahead: list[Node | None] = [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if has_own_backward(node) and not any(node is made for made in tape.nodes):
            raise UnsupportedError(f"{type(node).__name__} has a backward pass of its own, which is not watched")
        following = node.next_functions
        if not following and (leaf := getattr(node, "variable", None)) is not None:
            if (name := job.trained.get(id(leaf))) is not None:
                raise UnsupportedError(f"{name} is used where it is not seen")
            if (start := tape.starts.get(id(leaf))) is not None:
                raise UnsupportedError(f"{start.name} is used where it is not seen")
        ahead.extend([function for function, _ in following])


def output_gradients(losses: Tensor, calls: Sequence[Kept]) -> list[list[Tensor] | None]:
    """The gradients of the summed loss that each call needs; None where the loss does not depend on it."""
    if not calls or not losses.requires_grad:
        return [None] * len(calls)
    edges = [edge for call in calls for edge in call.edges]
    found = iter(torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True))
    grads = [[next(found) for _ in call.edges] for call in calls]
    return [None if any(grad is None for grad in given) else given for given in grads]
