"""How a model is to be processed, found out once: by the rules if its pass is proven, else record by record.

The proof (rowwise.py) is of the operations themselves. Beside it the gradients by rules are compared with autograd's on
a few records, at weights made up for it: neither the records nor the weights that somebody sends decide the way.
"""

import functools
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import remembered
from fedfdp.privacy.clipping.contributions import Contribution, Stored, row_norms, total_norms
from fedfdp.privacy.clipping.fallback import alone_losses, loop_pass, vmap_pass
from fedfdp.privacy.clipping.fast import Job, LossFn, Proven, buffers_kept, fast_pass, taped
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.rowwise import Mixed, Place, Rows, prove
from fedfdp.privacy.clipping.state import State, check_state, state_of
from fedfdp.privacy.clipping.tape import Call, Still
from fedfdp.privacy.clipping.watch import Recorder, UnsupportedError

log = logging.getLogger("fedfdp")

RECORDS = 4  # with which a pass is noted; and with one fewer
AGREE = 1e-3  # relative; kinks crossed by rounding and another order of summation stay below it
NOTHING = 1e-5


@dataclass(frozen=True)
class Plan:
    """How to process a model: by rules along a proven pass, through torch.func, or in a loop; and why not by rules."""

    how: Literal["rules", "vmap", "loop"]
    proven: Proven | None = None
    held: int = 0  # numbers held for each record between the passes
    reason: str = ""
    state: State | None = None  # what the model kept beside its weights before any record was seen


_plans: WeakKeyDictionary[nn.Module, dict[object, Plan]] = WeakKeyDictionary()


def plan_for(job: Job, x: Tensor, y: Tensor) -> Plan:
    """The plan for batches like this one; made at the first and kept as long as the model lives."""
    key = (
        x.shape[1:],
        x.dtype,
        y.shape[1:],
        y.dtype,
        tuple(job.params),
        tuple([layer.training for _, layer in job.layers]),
        _identified(job.loss_fn),
    )
    known = _plans.setdefault(job.model, {})
    if key not in known:
        with _weights_unchanged(job.model), _draws_unchanged(x.device):
            _set_up(job, x, y)
            state = state_of(job)
            plan, certain = examine(job, x, y, state)
        if not certain:  # the records at hand were not fit to judge by
            return plan
        if plan.how != "rules" and all(old.reason != plan.reason for old in known.values()):
            way = "torch.func" if plan.how == "vmap" else "a loop, one pass per record"
            log.warning(
                "%s: clipped through %s, slower than the layer rules: %s", type(job.model).__name__, way, plan.reason
            )
        known[key] = plan
    return known[key]


def _identified(loss_fn: LossFn) -> object:
    """What a loss function computes. One that is made anew at every step is not examined anew."""
    if isinstance(loss_fn, functools.partial):
        return (_identified(loss_fn.func), *[_identified(v) for v in (*loss_fn.args, *loss_fn.keywords.values())])
    return remembered(loss_fn)


@contextmanager
def _weights_unchanged(model: nn.Module) -> Iterator[None]:
    """A model that sets its weights by the records it sees would release them without noise."""
    before = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    yield
    changed = [both for both in before if not torch.equal(*(t.detach().nan_to_num() for t in both))]
    for parameter, copy in changed:
        parameter.data.copy_(copy)
    if changed:
        allowed = "its forward pass changes its own weights by the records it sees, past the noise"
        raise SettingError("model", type(model).__name__, allowed, "set them before training")


@contextmanager
def _draws_unchanged(device: torch.device) -> Iterator[None]:
    """What the next pass draws does not depend on whether the model was examined before it."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _set_up(job: Job, x: Tensor, y: Tensor) -> None:
    """One pass over records of zeros: what a model sets up at its first pass is then there, and holds no record."""
    records, targets = (t.new_zeros(2, *t.shape[1:]) for t in (x, y))
    try:
        with buffers_kept(job.layers, modules=False), torch.no_grad():
            job.loss_fn(job.model(records), targets)
    except Exception:  # a model for other records than these: it is examined as it is
        log.debug("%s does not run on zeros", type(job.model).__name__, exc_info=True)


def examine(job: Job, x: Tensor, y: Tensor, state: State | None = None) -> tuple[Plan, bool]:
    """A plan, and whether it may be kept."""
    real, reasons = _few(x, y), []
    with Still(), _made_up_weights(job.params):
        x, y = _usable(job, _made_up(x, y), real)
        losses, alone = loop_pass(job, x, y)
        reference = _gradients(alone)
        certain = all(bool(g.isfinite().all()) for g in reference.values())
        for images_last in (True, False):
            try:
                proven, held = _proven(job, x, y, images_last=images_last)
                together, found = fast_pass(job, x, y, proven)
                _same_losses(losses, together)
                _agree(reference, found)
                held += sum(c.rows.numel() for c in found if isinstance(c, Stored))
                return Plan("rules", proven, held // len(x), state=state), certain
            except Exception as error:  # the model itself runs, as the reference shows: there is another way
                reasons.append(_first_line(error))
        check_state(job, state)
        try:
            together, found = vmap_pass(job, x, y)
            _same_losses(losses, together)
            _agree(reference, found)
            many = [i % len(x) for i in range(3 * len(x))]  # a rule of somebody's for torch.func may begin later
            _same_losses(losses[many], vmap_pass(job, x[many], y[many])[0])
            return Plan("vmap", reason=reasons[-1], state=state), certain
        except Exception as error:
            return Plan("loop", reason=f"{reasons[-1]}; torch.func: {_first_line(error)}", state=state), certain


def _few(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A few records of the batch, finite ones."""
    usable = [i for i in range(min(len(x), 8 * RECORDS)) if not x.is_floating_point() or bool(x[i].isfinite().all())]
    chosen = [*usable, *[0] * RECORDS][:RECORDS]
    return x[chosen].nan_to_num() if x.is_floating_point() else x[chosen], y[chosen]


def _usable(job: Job, made: tuple[Tensor, Tensor], real: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Made-up records, or the real ones where the model does not take the others."""
    try:
        losses = alone_losses(job, *made)
    except Exception:  # a model for other records than these
        return real
    return made if bool(losses.isfinite().all()) else real


def _made_up(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Records like these, and all different: real ones hide what they have in common, and none of them decides."""
    chance = np.random.default_rng(0)  # numpy's: no mode of torch's reaches it

    def like(real: Tensor) -> Tensor:
        values = real.detach()
        shape = (RECORDS, *values.shape[1:])
        if values.is_floating_point():
            size = float(values.nan_to_num(0, 0, 0).abs().clamp(max=1e6).amax()) if values.numel() else 0.0
            return (size or 1.0) * torch.from_numpy(np.asarray(chance.standard_normal(shape))).to(values)
        picked = torch.from_numpy(np.asarray(chance.integers(max(1, len(values)), size=shape))).to(values.device)
        return values.gather(0, picked) if values.numel() else values.new_zeros(shape)

    return like(x), like(y)


@contextmanager
def _made_up_weights(params: Mapping[str, Tensor]) -> Iterator[None]:
    """Weights near the present ones, none of them zero: a layer that starts at zero hides what lies behind it."""
    chance, before = np.random.default_rng(0), {name: p.data for name, p in params.items()}
    try:
        for p in params.values():
            now = p.data.nan_to_num(0, 0, 0).clamp(-10, 10)
            size = float(now.square().mean().sqrt()) if now.numel() else 0.0
            size = size or 1 / math.sqrt(max(1, math.prod(p.shape[1:])))
            p.data = now + 0.3 * size * torch.from_numpy(
                np.asarray(chance.standard_normal(p.shape), dtype=np.float32)
            ).to(p)
        yield
    finally:
        for name, p in params.items():
            p.data = before[name]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _gradients(contributions: list[Contribution]) -> dict[str, Tensor]:
    return {c.name: c.rows for c in contributions if isinstance(c, Stored)}


def _same_losses(alone: Tensor, together: Tensor) -> None:
    """Raise unless a record's loss is the same in a batch as alone: it is released, and it weighs the record."""
    both_lost = ~alone.isfinite() & ~together.isfinite()
    if not bool((both_lost | ((alone - together).abs() <= AGREE * alone.abs() + NOTHING)).all()):
        raise UnsupportedError("a record's loss depends on other records, or on chance")


def _agree(reference: dict[str, Tensor], found: list[Contribution]) -> None:
    """Raise unless the contributions give every record's gradient as autograd gives it for the record alone."""
    some = next(iter(reference.values()))
    whole = torch.stack([row_norms(rows) for rows in reference.values()]).norm(dim=0)
    norms, slack = total_norms(found, len(some), some)
    allowed = AGREE * whole + NOTHING * whole.max() + (0 if slack is None else slack)
    if not bool(((norms - whole).abs() <= allowed).all()):
        raise UnsupportedError("the norms by rules are not autograd's: a record depends on others, or on chance")
    for record in range(len(some)):
        sums = Sums({name: rows[0] for name, rows in reference.items()}, 1)
        c = some.new_zeros(len(some))
        c[record] = 1
        for contribution in found:
            contribution.add_to(sums, c, Groups.of([len(some)]))
        sums.done()
        for name, total in sums.totals.items():
            right = reference[name][record]
            # Gradients that are zero but for rounding are measured against the record's whole gradient.
            near = AGREE * torch.linalg.vector_norm(right) + NOTHING * whole[record]
            if not torch.linalg.vector_norm(total[0] - right) <= near:
                raise UnsupportedError(f"{name}: its gradient for a record depends on other records, or on chance")


def _proven(job: Job, x: Tensor, y: Tensor, *, images_last: bool) -> tuple[Proven, int]:
    """The pass as a proven one, and how many numbers its calls hold."""

    def noted(count: int) -> tuple[Tensor, list[Call], Recorder]:
        with buffers_kept(job.layers):
            losses, calls, watch = taped(job, x[:count], y[:count], images_last=images_last)
        assert isinstance(watch, Recorder)
        return losses, calls, watch

    (losses, calls, one), (_, _, other) = noted(len(x)), noted(len(x) - 1)
    program, places = prove(one, other, (len(x), len(x) - 1), inputs=2)
    place = places.get(one.reference(losses))
    if isinstance(place, Mixed):
        raise UnsupportedError(place.reason)
    if place != Rows(0, 1, 1):
        raise UnsupportedError("the losses do not depend on the records one by one")
    before = tuple(_rows_before(call, places.get(call.source)) for call in calls)
    return Proven(program, before, images_last), sum(call.input.numel() + call.outputs for call in calls)


def _rows_before(call: Call, place: Place) -> int:
    """How many rows of a call's input come before the dimension of the records."""
    name = call.weight or call.bias
    if isinstance(place, Mixed):
        raise UnsupportedError(f"{name}: {place.reason}")
    if not isinstance(place, Rows):
        raise UnsupportedError(f"{name}: its input does not depend on the records")
    if place.dim >= call.rule.leading(call.input, call.options):
        raise UnsupportedError(f"{name}: records are where one of its own dimensions is")
    return math.prod(call.input.shape[: place.dim]) * place.before
