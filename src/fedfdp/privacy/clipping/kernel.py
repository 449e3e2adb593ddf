"""The private step's one operation: per-sample gradients, each cut to a bound on its norm, summed.

The bound holds for every input and every coefficient function. Never adds noise, and leaves the model as it found it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfdp._allocator import tune_allocator
from fedfdp.errors import SettingError
from fedfdp.privacy.clipping.check import refuse
from fedfdp.privacy.clipping.coefficients import Coefficient, bounded, wanted
from fedfdp.privacy.clipping.contributions import Contribution
from fedfdp.privacy.clipping.fallback import loop_pass, vmap_pass
from fedfdp.privacy.clipping.fast import Job, LossFn, buffers_kept, fast_pass
from fedfdp.privacy.clipping.groups import spans
from fedfdp.privacy.clipping.plan import Plan, forget, plan_for
from fedfdp.privacy.clipping.tape import UnsupportedError

CHUNK = 512
STORED = 2**24  # numbers of per-sample gradients that a fallback holds at a time


@dataclass(frozen=True)
class ClippedSum:
    """Σ c_b·g_b by parameter name with ‖c_b·g_b‖ ≤ clip, and what it was made of, record by record."""

    grads: dict[str, Tensor]
    losses: Tensor  # (B,)
    norms: Tensor  # (B,) before clipping
    coefficients: Tensor  # (B,) as applied
    skipped: int  # records that contributed nothing because a loss, gradient or coefficient was not finite
    sensitivity: float  # the L2 bound on one record's contribution to grads (the largest, where clip differs by record)


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
    refuse(model)
    params = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    job = Job(model, loss_fn, params)
    clips, groups = _clips(clip, x), _groups(sizes, len(x))
    sums = {n: torch.zeros(len(groups), *p.shape, dtype=p.dtype, device=p.device) for n, p in params.items()}
    empty = x.new_zeros(0, dtype=next(iter(params.values())).dtype)
    parts = [(empty, empty, empty, empty.bool())]
    if len(x):
        with buffers_kept(model):
            plan = plan_for(job, x, y)
        step = _step(chunk, plan, params)
        for start in range(0, len(x), step):
            part = slice(start, min(start + step, len(x)))
            with buffers_kept(model):
                losses, contributions = _pass(plan, job, x[part], y[part])
            norms, slack = _total(contributions, losses)
            c, bad = bounded(wanted(coefficient, losses, norms), losses, norms, slack, clips[part])
            if bad.any():
                for contribution in contributions:
                    contribution.drop(bad)
            where = spans(groups, part.start, part.stop)
            for contribution in contributions:
                contribution.add_to(sums, c, where)
            parts.append((losses, norms, c, bad))
    losses, norms, c, bad = (torch.cat(column) for column in zip(*parts, strict=True))
    return ClippedSum(
        grads=sums if sizes is not None else {name: total[0] for name, total in sums.items()},
        losses=losses,
        norms=norms,
        coefficients=c,
        skipped=int(bad.sum()),
        sensitivity=float(clips.max()) if isinstance(clip, Tensor) and clip.dim() and len(x) else float(clip),
    )


def _pass(plan: Plan, job: Job, x: Tensor, y: Tensor) -> tuple[Tensor, list[Contribution]]:
    if plan.how == "vmap":
        return vmap_pass(job, x, y)
    if plan.how == "rules":
        try:
            return fast_pass(job, x, y, plan.layouts, images_last=plan.images_last)
        except UnsupportedError:  # the model was changed since it was examined: examine it at the next step
            forget(job.model)
    return loop_pass(job, x, y)


def _total(contributions: list[Contribution], losses: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) norms over all parameters, in the losses' precision, and their slack."""
    if not contributions:
        return torch.zeros_like(losses), torch.zeros_like(losses)
    norms, slacks = zip(*(contribution.norms() for contribution in contributions), strict=True)
    norm, slack = (torch.linalg.vector_norm(torch.stack(parts), dim=0) for parts in (norms, slacks))
    return norm.to(losses.dtype), slack


def _clips(clip: float | Tensor, x: Tensor) -> Tensor:
    clips = torch.as_tensor(clip, dtype=torch.float64, device=x.device)
    if clips.dim() and clips.shape != x.shape[:1]:
        raise SettingError("clip", tuple(clips.shape), f"must be one number, or one for each of {len(x)} records")
    if not bool((clips.isfinite() & (clips > 0)).all()):
        raise SettingError("clip", clip, "must be positive and finite")
    return clips.expand(len(x))


def _groups(sizes: Sequence[int] | None, batch: int) -> list[int]:
    if sizes is None:
        return [batch]
    if sum(sizes) != batch or any(size < 0 for size in sizes):
        raise SettingError("sizes", list(sizes), f"must be counts that add up to the {batch} records")
    return list(sizes)


def _step(chunk: int | None, plan: Plan, params: Mapping[str, Tensor]) -> int:
    if chunk is not None:
        if chunk < 1:
            raise SettingError("chunk", chunk, "must be at least 1")
        return chunk
    if plan.how == "rules":
        return CHUNK
    return max(1, min(CHUNK, STORED // sum(math.prod(p.shape) for p in params.values())))
