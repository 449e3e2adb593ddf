"""Which way a model is processed, found out once: by layer rules if its pass is proven, else record by record.

Beside the proof the gradients by rules are compared with autograd's, on made-up records and at made-up weights: neither
the records nor the weights that somebody sends decide the way.
"""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import remembered
from fedfdp.core.trees import Inputs, call, each, form_of
from fedfdp.native.allocator import give_back
from fedfdp.privacy.clipping.agreement import Reference
from fedfdp.privacy.clipping.by_rules import Proven, measured_pass, proven_pass
from fedfdp.privacy.clipping.deterministic import Deterministic
from fedfdp.privacy.clipping.job import Job, LossFn, Together
from fedfdp.privacy.clipping.made_up import made_up, made_up_weights, records_for
from fedfdp.privacy.clipping.modules import named_layers
from fedfdp.privacy.clipping.one_by_one import Clean, vmap_pass
from fedfdp.privacy.clipping.state import (
    LOSS,
    State,
    Weights,
    changed_places,
    check_state,
    outlives,
    refusal,
    refused,
    require_unspoilt,
    state_of,
)
from fedfdp.privacy.clipping.undo import changes_undone

log = logging.getLogger("fedfdp")


@dataclass(frozen=True)
class Plan:
    """How a model is processed: by rules along a proven pass, through torch.func or in a loop; and why not by rules."""

    how: Literal["rules", "vmap", "loop"]
    proven: Proven | None = None
    held: int = 0  # numbers that are held for each record between the passes
    reason: str = ""
    state: State | None = None  # what the model kept beside its weights before it saw any record


_plans: WeakKeyDictionary[nn.Module, dict[object, Plan]] = WeakKeyDictionary()
# After the last plan: whose loss and layers it was for, and what the model kept.
_states: WeakKeyDictionary[nn.Module, tuple[object, list[int], State]] = WeakKeyDictionary()


def plan_for(job: Job, x: Inputs, y: Tensor) -> Plan:
    """The plan for batches like this one. It is made for the first and kept as long as the model lives."""
    loss = _identified(job.loss_fn)
    key = (
        (x.shape[1:], x.dtype) if isinstance(x, Tensor) else form_of(x),
        y.shape[1:],
        y.dtype,
        tuple(job.params),
        tuple([layer.training for _, layer in job.layers]),
        loss,
    )
    known = _plans.setdefault(job.model, {})
    if key not in known:
        require_unspoilt(job)
        _require_kept_nothing(job, loss)
        with _draws_unchanged(x.device), _copies_of_weights(job.model), _weights_unchanged(job.model):
            _set_up(job, x, y)
        with _draws_unchanged(x.device), _weights_unchanged(job.model):
            state = state_of(job)
            plan, certain = examine(job, x, y, state)
        inner = _inner(job)
        _states[inner.model] = (loss, _layers(inner), state_of(inner))
        give_back()  # the first step would otherwise come on top of it, where its memory is in other pieces
        if not certain:  # a gradient was not finite: this plan is not kept
            return plan
        if plan.how != "rules" and all(old.reason != plan.reason for old in known.values()):
            way = "torch.func" if plan.how == "vmap" else "a loop, one pass per record"
            log.warning(
                "%s: clipped through %s, slower than the layer rules: %s", type(job.model).__name__, way, plan.reason
            )
        known[key] = plan
    return known[key]


def _require_kept_nothing(job: Job, loss: object) -> None:
    """Raises if the model holds something else than after its last plan: a new one would take it for a constant."""
    job = _inner(job)
    last, layers, state = _states.get(job.model, (loss, [], {}))
    if layers != _layers(job):  # its owner has put it together anew: a pass leaves its layers as they are
        return
    for place in changed_places(job, state):
        if not place.endswith(".training") and (place != LOSS or last == loss):
            raise refused(place)


def _inner(job: Job) -> Job:
    """The same for the model whose records are taken together by person: its own plans and theirs are of one model."""
    return Job(job.model.model, job.loss_fn, job.params) if isinstance(job.model, Together) else job


def _layers(job: Job) -> list[int]:
    return [id(layer) for _, layer in job.layers]


def path_of(model: nn.Module) -> tuple[str, str]:
    """The way that a model was last found to go, and why not by rules; empty where it was not examined."""
    plans = list(_plans.get(model, {}).values())
    return (plans[-1].how, plans[-1].reason) if plans else ("", "")


def _identified(loss_fn: LossFn) -> object:
    """What a loss function computes: a partial that is made anew at every step is still the same loss."""
    if isinstance(loss_fn, functools.partial):
        return (_identified(loss_fn.func), *[_identified(v) for v in (*loss_fn.args, *loss_fn.keywords.values())])
    return remembered(loss_fn)


@contextmanager
def _weights_unchanged(model: nn.Module) -> Iterator[None]:
    """Raises where a pass changes the weights: a model that sets them by the records it sees would release these."""
    before, changed = Weights(model), []
    try:
        yield
    finally:
        changed += before.changed()
    if changed:
        allowed = "its forward pass changes its weights depending on records, which bypasses the noise"
        raise SettingError("model", type(model).__name__, allowed, "set them before training")


@contextmanager
def _copies_of_weights(model: nn.Module) -> Iterator[None]:
    """Within it the weights are copies: a model that changes its weights is refused, and has its own again."""
    weights = [
        weight for _, layer in named_layers(model) for weight in layer._parameters.values() if weight is not None
    ]
    before = [(weight, weight.data) for weight in dict.fromkeys(weights)]
    try:
        for weight, numbers in before:
            weight.data = numbers.clone()
        yield
    finally:
        for weight, numbers in before:
            weight.data = numbers


@contextmanager
def _draws_unchanged(device: torch.device) -> Iterator[None]:
    """Puts torch's random state back, so that a pass draws the same whether or not the model was examined before it."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _set_up(job: Job, x: Inputs, y: Tensor) -> None:
    """One pass over records of zeros, so that whatever a model sets up at its first pass holds no record."""
    records, targets = (each(t, lambda part: part.new_zeros(2, *part.shape[1:])) for t in (x, y))
    try:
        with changes_undone(job.layers, modules=False), torch.no_grad(), Clean():
            job.loss_fn(call(job.model, records), targets)
    except Exception:  # a model for other records than these: it is examined as it is
        log.debug("%s does not run on zeros", type(job.model).__name__, exc_info=True)


def examine(job: Job, x: Inputs, y: Tensor, state: State | None = None) -> tuple[Plan, bool]:
    """A plan, and whether it may be kept: not if the gradients it was judged by are not finite."""
    reasons: list[str] = []
    with Deterministic(), made_up_weights(job.params):
        x, y, independent = records_for(job, x, y)
        reference = Reference.of(job, x, y)
        for channels_last in (True, False):
            try:
                proven = proven_pass(job, x, y, channels_last=channels_last)
                passed, held = measured_pass(job, x, y, proven)
                reference.compare(*passed)
                if independent:
                    state = _state_after(job, x, y, proven)
                else:  # what it kept of the records at hand would be a constant of every later pass
                    check_state(job, state)
                return Plan("rules", proven, held // len(x), state=state), reference.finite
            except Exception as error:  # the model itself runs, as the reference shows: there is another way
                reasons.append(_first_line(error))
        check_state(job, state, of_records=not independent)
        try:
            reference.compare(*vmap_pass(job, x, y))
            return Plan("vmap", reason=reasons[-1], state=state), reference.finite
        except Exception as error:
            reason = f"{reasons[-1]}; torch.func: {_first_line(error)}"
            return Plan("loop", reason=reason, state=state), reference.finite


def _state_after(job: Job, x: Inputs, y: Tensor, proven: Proven) -> State:
    """What the model keeps after made-up records.

    Where it outlives the model, in the loss, in a class or at module level, it must be the same after others: another
    model would take records for a constant. What a model itself keeps is compared before it is examined again, and
    reaches neither evaluations nor the released model, which are for other modules.
    """
    state = state_of(job)
    with suppress(Exception):  # other records may take another way through the model
        measured_pass(job, *made_up(x, y, shares=True, seed=1), proven)
    for place in changed_places(job, state):
        if outlives(place) or isinstance(job.model, Together):  # the next person may need another plan
            raise refusal(place)
    return state_of(job)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
