"""The private step's one operation: per-record gradients, each cut to a bound on its norm, summed.

The bound holds for every input and every coefficient function. Never adds noise, and leaves the model as it found it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfdp.core import ranges
from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Inputs, apart
from fedfdp.core.weights import Shapes
from fedfdp.native.allocator import tune_allocator
from fedfdp.privacy.clipping.bounded import Wanted, bounded, wanted
from fedfdp.privacy.clipping.by_rules import rules_losses, rules_pass
from fedfdp.privacy.clipping.chunks import in_chunks, records_at_a_time, vmap_or_loop_pass
from fedfdp.privacy.clipping.contributions import Contribution, total_norms
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.job import Job, LossFn
from fedfdp.privacy.clipping.modules import named_layers
from fedfdp.privacy.clipping.one_by_one import loop_losses, loop_pass
from fedfdp.privacy.clipping.plan import Plan, plan_for
from fedfdp.privacy.clipping.refused import trainable


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
    x: Inputs,
    y: Tensor,
    *,
    clip: float | Tensor,
    coefficient: Wanted | None = None,
    sizes: Sequence[int] | None = None,
    chunk: int | None = None,
) -> ClippedSum:
    """Sum of per-record gradients, each times a coefficient that keeps its norm within `clip`.

    `x` is a tensor, or a `Tree` of several inputs. `loss_fn(output, y)` gives one loss per record. What is wanted for
    one record is `coefficient(loss, norm)` (default min(1, clip/norm)); it cannot see other records (`bounded.wanted`),
    and is cut to the bound. `clip` is one bound, or one per record. `sizes` says that the records come from several
    groups, one after the other: each gradient then has a leading dimension with every group's own sum. At most `chunk`
    records are processed at a time, to the same result.
    """
    tune_allocator()
    _whole_precision(x.device.type)
    layers = named_layers(model)
    job = Job(model, loss_fn, trainable(model, layers), layers)
    x = apart(x)
    batch = x.shape[0]  # a tensor's own len takes several times as long
    clips, groups = _clips(clip, x), _groups(sizes, batch)
    sums = Sums(job.params, len(groups))
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    skipped = 0
    plan = plan_for(job, x, y) if batch else Plan("rules")
    step = records_at_a_time(chunk, plan, job)
    alone = vmap_or_loop_pass if plan.how == "vmap" else loop_pass
    for start, stop, (losses, contributions) in in_chunks(plan, job, x, y, step, together=rules_pass, alone=alone):
        rows = losses.shape[0]  # more where a single record was passed in copies, see `in_chunks`
        norms, slack = total_norms(contributions, rows, losses)
        limits = clips if stop - start == batch or not clips.dim() else clips[start:stop]
        c, bad = bounded(wanted(coefficient, losses, norms), losses, norms, slack, limits)
        here = groups if stop - start == batch else groups.within(start, stop)
        if rows > stop - start:
            c[1:], here = 0, here.with_rows(rows)
        skipped += _add_up(contributions, sums, c, bad, here, stop - start)
        parts.append((losses[: stop - start], norms[: stop - start], c[: stop - start]))
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


def _add_up(contributions: list[Contribution], sums: Sums, c: Tensor, bad: Tensor, groups: Groups, records: int) -> int:
    """Adds Σ c_b·g_b of the records that are not bad to each group's sum; how many are bad."""
    if bool(bad.any()):  # of copies too: a coefficient of 0 does not remove what is not finite
        for contribution in contributions:
            contribution.drop(bad)
    for contribution in contributions:
        contribution.add_to(sums, c, groups)
    return int(bad[:records].sum())


def record_losses(model: nn.Module, loss_fn: LossFn, x: Inputs, y: Tensor) -> Tensor:
    """One loss per record, (B,), that reads no other record: all at once where that was proven, else one by one."""
    params = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not len(x):
        return torch.zeros(0, dtype=next(iter(params.values())).dtype, device=x.device)
    job = Job(model, loss_fn, params)
    x = apart(x)
    parts = in_chunks(plan_for(job, x, y), job, x, y, 512, together=rules_losses, alone=loop_losses)
    return torch.cat([losses[: stop - start] for start, stop, losses in parts])


def _clips(clip: float | Tensor, x: Inputs) -> Tensor:
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
    """Raises where torch rounds products to half precision: norms and sums would no longer fit together."""
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
