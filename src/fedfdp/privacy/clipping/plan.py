"""How a model is to be processed, found out once: by the rules if they are proven right on it, else record by record.

The proof runs a few records together and each alone. It accepts the rules only if every layer's input for a record is
the same both ways (which also tells where the batch dimension is) and the gradients are autograd's; it never guesses.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedfdp.errors import SettingError
from fedfdp.privacy.clipping.contributions import Contribution, Stored, row_norms, total_norms
from fedfdp.privacy.clipping.fallback import loop_pass, vmap_pass
from fedfdp.privacy.clipping.fast import Job, Layout, LossFn, buffers_kept, fast_pass, taped
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.tape import AmbiguousError, Call, Still, UnsupportedError

log = logging.getLogger("fedfdp")

RECORDS = 3  # two records leave a folded batch of two rows ambiguous more often than three
AGREE = 1e-3  # relative; kinks crossed by rounding and another order of summation stay below it

NOTHING = 1e-5


@dataclass(frozen=True)
class Plan:
    """How to process a model: by rules with these layouts, through torch.func, or in a loop; and why not by rules."""

    how: Literal["rules", "vmap", "loop"]
    layouts: tuple[Layout, ...] = ()
    images_last: bool = False
    held: int = 0  # numbers held for each record between the passes
    reason: str = ""


_plans: WeakKeyDictionary[nn.Module, dict[object, Plan]] = WeakKeyDictionary()


def forget(model: nn.Module) -> None:
    """Examine the model anew at its next use."""
    _plans.pop(model, None)


def plan_for(job: Job, x: Tensor, y: Tensor) -> Plan:
    """The plan for batches like this one; made at the first and kept as long as the model lives."""
    key = (
        x.shape[1:],
        x.dtype,
        x.shape[0] == 1,
        tuple(job.params),
        tuple(layer.training for _, layer in job.layers),
        _code(job.loss_fn),
    )
    known = _plans.setdefault(job.model, {})
    if key not in known:
        with _weights_unchanged(job.model):
            plan, certain = examine(job, x, y)
        if not certain:  # the records at hand were not fit to judge by
            return plan
        if plan.how != "rules" and all(old.reason != plan.reason for old in known.values()):
            way = "torch.func" if plan.how == "vmap" else "a loop, one pass a record"
            log.warning(
                "%s: clipped through %s, slower than the layer rules: %s", type(job.model).__name__, way, plan.reason
            )
        known[key] = plan
    return known[key]


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


def _code(loss_fn: LossFn) -> object:
    """What a loss function is told apart by: its code, so that one made anew at every step is not examined anew."""
    plain = getattr(loss_fn, "func", loss_fn)  # of a functools.partial
    return getattr(plain, "__code__", type(plain))


def examine(job: Job, x: Tensor, y: Tensor) -> tuple[Plan, bool]:
    """A plan, and whether it may be kept; judged on a few finite records of the batch."""
    few, alike = _few(x)
    if not few:
        return Plan("loop", reason="no finite record"), False
    x, y, reasons = x[few], y[few], []
    made = _made_up(x.detach())
    with Still():
        losses, alone = loop_pass(job, x, y)
        reference = _gradients(alone)
        certain = all(bool(g.isfinite().all()) for g in reference.values())
        for images_last in (True, False):
            try:
                layouts, held = _layouts(job, x, y, images_last=images_last)
                together, found = fast_pass(job, x, y, layouts, images_last=images_last)
                _same_losses(losses, together)
                _agree(reference, found)
                _check_elsewhere(job, made, y, layouts, images_last=images_last, alike=alike)
                held += sum(c.rows.numel() for c in found if isinstance(c, Stored))
                return Plan("rules", layouts, images_last, held // len(x)), certain
            except Exception as error:  # the model itself runs, as the reference shows: there is another way
                reasons.append(_first_line(error))
                certain = certain and not isinstance(error, AmbiguousError)
        try:
            together, found = vmap_pass(job, x, y)
            _same_losses(losses, together)
            _agree(reference, found)
            return Plan("vmap", reason=reasons[-1]), certain
        except Exception as error:
            return Plan("loop", reason=f"{reasons[-1]}; torch.func: {_first_line(error)}"), certain


def _few(x: Tensor) -> tuple[list[int], bool]:
    """Which records to judge by, different ones if there are any; and whether all of these are equal."""
    usable = [i for i in range(min(len(x), 8 * RECORDS)) if not x.is_floating_point() or bool(x[i].isfinite().all())]
    different: list[int] = []
    for i in usable:
        if len(different) < RECORDS and not any(torch.equal(x[i], x[j]) for j in different):
            different.append(i)
    return (different + [i for i in usable if i not in different])[:RECORDS], len(different) < 2


def _check_elsewhere(
    job: Job, made: Tensor, y: Tensor, layouts: tuple[Layout, ...], *, images_last: bool, alike: bool
) -> None:
    """Raise where made-up records show that the model mixes them: real ones hide it in all that they have in common."""
    if len(made) == 1:
        return
    try:
        losses, alone = loop_pass(job, made, y)
        usable = bool(losses.isfinite().all()) and all(bool(g.isfinite().all()) for g in _gradients(alone).values())
    except Exception:  # a model for other records than these
        usable = False
    if usable:
        together, found = fast_pass(job, made, y, layouts, images_last=images_last)
        _same_losses(losses, together)
        _agree(_gradients(alone), found)
    elif alike:
        raise AmbiguousError("records that are all alike do not show whether the model mixes them")


def _made_up(x: Tensor) -> Tensor:
    """Records of about the same size that have nothing in common; of whole numbers the same ones in another order."""
    chance = torch.Generator().manual_seed(0)
    if not x.is_floating_point():
        return x.flatten()[torch.randperm(x.numel(), generator=chance).to(x.device)].view(x.shape)
    size = float(x.abs().amax()) if x.numel() else 0.0
    return x + (size or 1.0) * torch.randn(x.shape, generator=chance).to(x.device, x.dtype)


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
    if not bool(((norms - whole).abs() <= AGREE * whole + (0 if slack is None else slack)).all()):
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
            allowed = AGREE * torch.linalg.vector_norm(right) + NOTHING * whole[record]
            if not torch.linalg.vector_norm(total[0] - right) <= allowed:
                raise UnsupportedError(f"{name}: its gradient for a record depends on other records, or on chance")


def _layouts(job: Job, x: Tensor, y: Tensor, *, images_last: bool) -> tuple[tuple[Layout, ...], int]:
    """Where each call keeps the records, from the inputs of the batch and of each record alone; and the calls' size."""

    def calls_of(part: slice) -> list[Call]:
        with buffers_kept(job.layers):
            return taped(job, x[part], y[part], images_last=images_last)[1]

    together, alone = calls_of(slice(None)), [calls_of(slice(i, i + 1)) for i in range(len(x))]
    if any(len(calls) != len(together) for calls in alone):
        raise UnsupportedError("the model makes other calls for a batch than for a record")
    layouts = tuple(_layout(call, [calls[k] for calls in alone]) for k, call in enumerate(together))
    return layouts, sum(call.input.numel() + call.outputs for call in together)


def _layout(call: Call, alone: list[Call]) -> Layout:
    batch, rows, name = len(alone), alone[0].rows, call.weight or call.bias
    if any((c.rule, c.weight, c.bias, c.rows) != (call.rule, call.weight, call.bias, rows) for c in alone):
        raise UnsupportedError(f"{name}: called otherwise for a batch than for a record")
    if call.rows != rows * batch:
        raise UnsupportedError(f"{name}: its input does not grow with the batch")
    fitting = [before for before in _divisors(rows) if _same(call, alone, before)] if batch > 1 else [1]
    if not fitting:
        raise UnsupportedError(f"{name}: a record's values depend on the other records, or on chance")
    if len(fitting) > 1:
        raise AmbiguousError(f"{name}: which rows belong to which record cannot be told apart")
    return Layout(type(call.rule).__name__, call.weight, call.bias, rows, fitting[0])


def _same(call: Call, alone: list[Call], before: int) -> bool:
    rows = call.input.reshape(before, len(alone), call.rows // len(alone) // before, -1)
    for record, single in enumerate(alone):
        right = single.input.reshape(before, rows.shape[2], -1)
        unit = 1024 * torch.finfo(right.dtype).eps if right.is_floating_point() else 0
        if not bool(((rows[:, record] - right).abs() <= unit * right.abs().max()).all()):
            return False
    return True


def _divisors(number: int) -> Iterator[int]:
    return (n for n in range(1, number + 1) if number % n == 0)
