"""The private step's one operation: per-sample gradients, each cut to a bound on its norm, summed.

The bound holds for every input and every coefficient function. Never adds noise, and leaves the model as it found it.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from fedfdp.core import ranges
from fedfdp.core.errors import SettingError
from fedfdp.core.weights import Shapes
from fedfdp.native.allocator import tune_allocator
from fedfdp.privacy.clipping.bounded import Wanted, bounded, wanted
from fedfdp.privacy.clipping.check import trainable
from fedfdp.privacy.clipping.contributions import Contribution, total_norms
from fedfdp.privacy.clipping.fallback import alone_losses, loop_pass, vmap_pass
from fedfdp.privacy.clipping.fast import Job, LossFn, Proven, fast_losses, fast_pass
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.plan import RECORDS, Plan, plan_for
from fedfdp.privacy.clipping.state import unchanged
from fedfdp.privacy.clipping.watch import UnsupportedError

log = logging.getLogger("fedfdp")

Found = TypeVar("Found", covariant=True)
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
    coefficient: Wanted | None = None,
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
    alone = _vmap_or_loop if plan.how == "vmap" else loop_pass
    for start, stop, (losses, contributions) in _parts(plan, job, x, y, step, fast=fast_pass, alone=alone):
        rows = losses.shape[0]  # one more than there are records where a record was doubled
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
    """Σ c_b·g_b by group, of the records that are not bad; how many are."""
    dropped = int(bad[:records].sum())
    if dropped:
        for contribution in contributions:
            contribution.drop(bad)
    for contribution in contributions:
        contribution.add_to(sums, c, groups)
    return dropped


def record_losses(model: nn.Module, loss_fn: LossFn, x: Tensor, y: Tensor) -> Tensor:
    """One loss per record, (B,), that reads no other record: all at once where that was proven, else one by one."""
    params = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not len(x):
        return x.new_zeros(0, dtype=next(iter(params.values())).dtype)
    job = Job(model, loss_fn, params)
    parts = _parts(plan_for(job, x, y), job, x, y, 512, fast=fast_losses, alone=alone_losses)
    return torch.cat([losses[: stop - start] for start, stop, losses in parts])


class _Fast(Protocol[Found]):
    def __call__(self, job: Job, x: Tensor, y: Tensor, proven: Proven) -> Found: ...


class _Alone(Protocol[Found]):
    def __call__(self, job: Job, x: Tensor, y: Tensor) -> Found: ...


def _parts(
    plan: Plan, job: Job, x: Tensor, y: Tensor, step: int, *, fast: _Fast[Found], alone: _Alone[Found]
) -> Iterator[tuple[int, int, Found]]:
    """What is found for all records, a chunk at a time: from, to, and the result there, with a doubled record in it."""
    for start in range(0, len(x), step):
        stop = min(start + step, len(x))
        if plan.proven is not None:
            part = (x, y) if stop - start == len(x) else (x[start:stop], y[start:stop])
            try:
                found = fast(job, *_doubled(*part), plan.proven)
            except UnsupportedError:
                _say_otherwise(job)
                if stop - start > RECORDS:
                    # A model that computes otherwise for many records gets as few as it was examined with.
                    smaller = _parts(plan, job, x[start:stop], y[start:stop], RECORDS, fast=fast, alone=alone)
                    yield from ((start + first, start + last, part) for first, last, part in smaller)
                    continue
            else:
                yield start, stop, found
                continue
        with unchanged(job, plan.state):
            found = alone(job, x[start:stop], y[start:stop])
        yield start, stop, found


def _vmap_or_loop(job: Job, x: Tensor, y: Tensor) -> tuple[Tensor, list[Contribution]]:
    try:
        return vmap_pass(job, x, y)
    except RuntimeError:  # a branch that was not taken before, and that torch.func does not take
        _say_otherwise(job)
        return loop_pass(job, x, y)


def _doubled(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A single record is given twice: a pass is proven for two records or more, and some models treat one otherwise."""
    return (x, y) if x.shape[0] != 1 else (torch.cat([x, x]), torch.cat([y, y]))


_said: set[str] = set()


def _say_otherwise(job: Job) -> None:
    name = type(job.model).__name__
    if name not in _said:
        _said.add(name)
        log.warning("%s: some passes differ from the one that was examined; these take a few records at a time", name)


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
