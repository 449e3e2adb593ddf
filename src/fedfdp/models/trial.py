"""A task and its loss, tried before anything is charged: whether they take such targets, and what they give."""

import math

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.models.losses import LossFunction
from fedfdp.models.tasks import TASKS, Task
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.state import check_state, state_of

_refused: list[LossFunction] = []  # functions that have kept something of made-up targets, or changed


def check_task(
    task: Task, y: Tensor, shape: tuple[int, ...], loss: LossFunction | None = None, *, device: str = "cpu"
) -> None:
    """Raises unless the loss and `right` give a number for each record, for targets like y and outputs of this shape.

    `loss` takes the place of the task's. Only the shape and the type of y are looked at: what a function keeps of the
    targets that it is tried on would be in every gradient.
    """
    if task.targets == "places" and TASKS.get(task.name) == task:
        places = list(shape)
        del places[task.axis]
        if places[1:] != list(y.shape[1:]):
            given = f"targets of shape {_each(y.shape[1:])}, where the model gives {_each(shape[1:])}"
            raise SettingError("task", task.name, given, f"it needs a class for every place, {_each(places[1:])}")
    tries = _made_up(task, y, shape)
    if loss is None:
        _try(task.loss, tries, shape, device, "task", task.name, "its loss ")
    else:
        _try(loss, tries, shape, device, "loss", str(getattr(loss, "__qualname__", type(loss).__name__)))
    _try(task.right, tries, shape, device, "task", task.name, "its `right` ", trained=False)
    for measure, of_loss in task.of_loss.items():
        try:
            float(of_loss(1.0))
        except Exception as error:  # whatever the user's own code raises
            raise SettingError("task", task.name, f"its measure {measure!r} fails on a loss of 1: {error}") from None


def _made_up(task: Task, y: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Targets of two records: zeros first, then others, as a function of yours may take no zeros or two of a kind."""
    of_two = (2, *y.shape[1:])
    if y.is_floating_point() or task.targets == "labels":
        rising = torch.linspace(0, 1, math.prod(of_two)).view(of_two)
        each = torch.zeros(2, math.prod(of_two) // 2)
        if each.numel():
            each[0, 0] = each[1, -1] = 1.0  # shares that add up to 1, and so do the next
        even = torch.full(of_two, 1 / max(1, each.shape[1]))
        others = [rising.round(), rising, torch.ones(of_two), each.view(of_two), even, rising + 1, 2 * rising - 1]
    else:
        last = max(1, (shape[task.axis] if task.targets == "places" else shape[-1]) - 1)
        others = [torch.tensor(pair).view(2, *[1] * (len(of_two) - 1)) for pair in ((1, last), (last, 0), (0, last))]
    return [torch.zeros(of_two, dtype=y.dtype), *[other.expand(of_two).to(y.dtype) for other in others]]


def _try(
    function: LossFunction,
    tries: list[Tensor],
    shape: tuple[int, ...],
    device: str,
    setting: str,
    name: str,
    part: str = "",
    *,
    trained: bool = True,
) -> None:
    if any(function is one for one in _refused):  # it holds what it was tried on
        raise SettingError(setting, name, f"{part}was changed when it was tried before", "make it anew")
    reasons: list[str] = []
    job = Job(nn.Module(), function, {})
    for targets in tries:
        before = state_of(job)
        try:
            with torch.random.fork_rng():
                outputs = torch.zeros(len(targets), *shape[1:], device=device, requires_grad=trained)
                found = function(outputs, given := targets.clone().to(device))
            if reasons:  # what it keeps of targets it would keep of real ones
                check_state(job, before, of_records=False)
            break
        except SettingError:
            _refused.append(function)
            raise
        except Exception as error:  # whatever the user's own code raises
            reasons.append((str(error).splitlines() or [type(error).__name__])[0])
    else:
        tried = "zeros, ones and others" if tries[0].is_floating_point() else "zeros, first and last class"
        raise SettingError(setting, name, f"{part}fails on two made-up records ({tried}): {reasons[0]}")
    if not torch.equal(given.cpu(), targets):
        raise SettingError(setting, name, f"{part}changes the targets that it is given", "let it work on a copy")
    if not isinstance(found, Tensor) or found.shape != targets.shape[:1]:
        gives = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        fix = "no mean over the batch (reduction='none'), and no dimension but that of the records"
        raise SettingError(setting, name, f"{part}gives {gives} for {len(targets)} records, one number each", fix)
    if trained and not found.requires_grad:
        allowed = f"{part}has no gradient: nothing but noise would be trained"
        raise SettingError(setting, name, allowed, "take detach() and argmax() out of it")


def _each(shape: list[int] | tuple[int, ...]) -> str:
    return f"(records, {', '.join(map(str, shape))})"
