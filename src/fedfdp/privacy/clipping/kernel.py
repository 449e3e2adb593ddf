"""The private step's one operation: per-sample gradients, each cut to a bound on its norm, summed.

The bound holds for every input and every coefficient function. Never adds noise, and leaves the model as it found it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfdp import ranges
from fedfdp._allocator import tune_allocator
from fedfdp.errors import SettingError
from fedfdp.privacy.clipping.check import trainable
from fedfdp.privacy.clipping.coefficients import Coefficient, bounded, wanted
from fedfdp.privacy.clipping.contributions import Contribution, total_norms
from fedfdp.privacy.clipping.fallback import loop_pass, vmap_pass
from fedfdp.privacy.clipping.fast import Job, LossFn, buffers_kept, fast_pass, one_loss_a_record
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.layers import named_layers
from fedfdp.privacy.clipping.plan import Plan, forget, plan_for
from fedfdp.privacy.clipping.tape import UnsupportedError
from fedfdp.weights import Shapes

HELD = 3 * 2**24  # 200 megabytes in single precision; larger chunks are no faster


@dataclass(frozen=True)
class ClippedSum:
    """Σ c_b·g_b with ‖c_b·g_b‖ ≤ clip, and what it was made of, record by record."""

    flat: Tensor  # (d,) the sums of all parameters, one after the other; (groups, d) where records came in groups
    shapes: Shapes  # the parameters' names and shapes, in that order
    losses: Tensor  # (B,)
    norms: Tensor  # (B,) before clipping
    coefficients: Tensor  # (B,) as applied
    skipped: int  # records that contributed nothing because a loss, gradient or coefficient was not finite
    sensitivity: float  # the L2 bound on one record's contribution to grads (the largest, where clip differs by record)

    @property
    def grads(self) -> dict[str, Tensor]:
        """The sums by parameter name."""
        parts = torch.split(self.flat, [math.prod(shape) for _, shape in self.shapes], dim=-1)
        first = self.flat.shape[:-1]
        return {name: part.view(*first, *shape) for (name, shape), part in zip(self.shapes, parts, strict=True)}


def clipped_sum(
    model: nn.Module,
    loss_fn: LossFn,
    x: Tensor,
    y: Tensor,
    *,
    clip: float | Tensor,
    coefficient: Coefficient | None = None,
    sizes: Sequence[int] | None = None,
    chunk: int | None = None,
) -> ClippedSum:
    """Sum of per-sample gradients, each times a coefficient that keeps its norm within `clip`.

    `loss_fn(output, y)` gives one loss a record. `coefficient(loss, norm)` says what is wanted for one record (default
    min(1, clip/norm)); it is evaluated one record at a time and cut to the bound. `clip` is one bound, or one a record.
    `sizes` says that the records come from several groups, one after the other: each gradient then has a leading
    dimension with every group's own sum. At most `chunk` records are processed at a time; the result is the same.
    """
    tune_allocator()
    _whole_precision(x.device.type)
    job = Job(model, loss_fn, trainable(model))
    batch = x.shape[0]  # a tensor's own len takes several times as long
    clips, groups = _clips(clip, x), _groups(sizes, batch)
    sums = Sums(job.params, len(groups))
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    skipped = 0
    plan = plan_for(job, x, y) if batch else Plan("rules")
    step = _step(chunk, plan, job.params)
    for start in range(0, batch, step):
        stop = min(start + step, batch)
        whole = stop - start == batch
        losses, contributions = _pass(plan, job, *((x, y) if whole else (x[start:stop], y[start:stop])))
        norms, slack = total_norms(contributions, stop - start, losses)
        limits = clips if whole or not clips.dim() else clips[start:stop]
        c, bad = bounded(wanted(coefficient, losses, norms), losses, norms, slack, limits)
        here = groups if whole else groups.within(start, stop)
        skipped += _add_up(contributions, sums, c, bad, here)
        parts.append((losses, norms, c))
    if not parts:
        parts = [(next(iter(job.params.values())).new_zeros(0),) * 3]
    losses, norms, c = parts[0] if len(parts) == 1 else (torch.cat(column) for column in zip(*parts, strict=True))
    return ClippedSum(
        flat=sums.done() if sizes is not None else sums.done()[0],
        shapes=sums.shapes,
        losses=losses,
        norms=norms,
        coefficients=c,
        skipped=skipped,
        sensitivity=max(clip.tolist(), default=0.0) if isinstance(clip, Tensor) and clip.dim() else float(clip),
    )


def _add_up(contributions: list[Contribution], sums: Sums, c: Tensor, bad: Tensor, groups: Groups) -> int:
    """Σ c_b·g_b by group, of the records that are not bad; how many are."""
    dropped = int(bad.sum())
    if dropped:
        for contribution in contributions:
            contribution.drop(bad)
    for contribution in contributions:
        contribution.add_to(sums, c, groups)
    return dropped


def record_losses(model: nn.Module, loss_fn: LossFn, x: Tensor, y: Tensor) -> Tensor:
    """One loss a record, (B,), that reads no other record: all at once where that was proven, one by one otherwise."""
    params = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not len(x):
        return x.new_zeros(0, dtype=next(iter(params.values())).dtype)
    plan = plan_for(Job(model, loss_fn, params), x, y)
    step, parts = 512 if plan.how == "rules" else 1, []
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        with buffers_kept(named_layers(model)), torch.no_grad():
            parts.append(one_loss_a_record(loss_fn(model(x[part]), y[part]), len(x[part])))
    return torch.cat(parts)


def _pass(plan: Plan, job: Job, x: Tensor, y: Tensor) -> tuple[Tensor, list[Contribution]]:
    if plan.how == "vmap":
        return vmap_pass(job, x, y)
    if plan.how == "rules":
        try:
            return fast_pass(job, x, y, plan.layouts, images_last=plan.images_last)
        except UnsupportedError:  # the model was changed since it was examined: examine it at the next step
            forget(job.model)
    return loop_pass(job, x, y)


def _clips(clip: float | Tensor, x: Tensor) -> Tensor:
    if isinstance(clip, Tensor) and clip.dim():
        if clip.shape != x.shape[:1]:
            raise SettingError("clip", tuple(clip.shape), f"must be one number, or one for each of {len(x)} records")
        clips = clip.to(x.device, torch.float64)
        for end in (clips.amin(), clips.amax()) if len(clips) else ():
            ranges.BOUND.check("clip", float(end))
        return clips
    ranges.BOUND.check("clip", float(clip))
    return torch.tensor(float(clip), dtype=torch.float64)


def _whole_precision(device: str) -> None:
    """Raises where products would be rounded to half precision or less: norms and sums would no longer fit together."""
    if torch.get_float32_matmul_precision() != "highest":
        found, fix = torch.get_float32_matmul_precision(), 'call torch.set_float32_matmul_precision("highest")'
        raise SettingError("torch.float32_matmul_precision", found, "private sums need whole single precision", fix)
    if torch.is_autocast_enabled(device):
        raise SettingError("torch.autocast", True, "private sums need whole single precision", "train outside of it")


def _groups(sizes: Sequence[int] | None, batch: int) -> Groups:
    if sizes is None:
        return Groups.of([batch])
    if sum(sizes) != batch or any(size < 0 for size in sizes):
        raise SettingError("sizes", list(sizes), f"must be counts that add up to the {batch} records")
    return Groups.of(sizes)


def _step(chunk: int | None, plan: Plan, params: Mapping[str, Tensor]) -> int:
    """Records to process at a time: as many as keep what is held for them within HELD numbers."""
    if chunk is not None:
        if chunk < 1:
            raise SettingError("chunk", chunk, "must be at least 1")
        return chunk
    each = plan.held if plan.how == "rules" else sum(math.prod(p.shape) for p in params.values())
    return max(1, HELD // max(1, each))
