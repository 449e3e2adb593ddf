"""Records and weights made up to examine a model with: those at hand do not decide which way it is processed.

Draws from numpy, which no mode of torch's reaches.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fedfdp.core.trees import Inputs, each, parts_of
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.one_by_one import loop_losses

RECORDS = 4  # a pass is traced with so many, and with one fewer

Batch = tuple[Inputs, Tensor]


def records_for(job: Job, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor, bool]:
    """Made-up records of these shapes, and True. If the model fails on those, others, and False.

    Targets from 0 to 1 come second, as some losses take no others. The others tell of the records at hand: random ones
    of their size and out of their whole numbers, or a few real ones if the model fails on those, too.
    """
    ways = ((made_up(x, y), True), (made_up(x, y, shares=True), True), (made_up(x, y, alike=True), False))
    for batch, independent in ways:
        try:
            losses = loop_losses(job, *batch)
        except Exception:  # a model for other records than these
            continue
        if bool(losses.isfinite().all()):
            return *batch, independent
    return *_few(x, y), False


def _few(x: Inputs, y: Tensor) -> Batch:
    """A few records of the batch, finite ones."""
    usable = [i for i in range(min(len(x), 8 * RECORDS)) if all(bool(part[i].isfinite().all()) for part in parts_of(x))]
    chosen = [*usable, *[0] * RECORDS][:RECORDS]
    return each(x[chosen], lambda part: part.nan_to_num() if part.is_floating_point() else part), y[chosen]


def made_up(x: Inputs, y: Tensor, *, alike: bool = False, shares: bool = False, seed: int = 0) -> Batch:
    """Random records of the same shape: values that real records share could hide that one depends on another.

    Normal numbers, and 0 and 1 for whole ones; if `alike`, of the size of the records at hand, and out of these. If
    `shares`, targets that are no whole numbers are from 0 to 1.
    """
    chance = np.random.default_rng(seed)

    def like(real: Tensor) -> Tensor:
        values = real.detach()
        shape = (RECORDS, *values.shape[1:])
        if values.is_floating_point():
            size = float(values.nan_to_num(0, 0, 0).abs().clamp(max=1e6).amax()) if alike and values.numel() else 1.0
            return (size or 1.0) * torch.from_numpy(np.asarray(chance.standard_normal(shape))).to(values)
        picked = np.asarray(chance.integers(max(1, len(values)) if alike else 2, size=shape))
        if not alike:
            return torch.from_numpy(picked).to(values)
        rows = torch.from_numpy(picked).to(values.device)
        return values.gather(0, rows) if values.numel() else values.new_zeros(shape)

    records, targets = each(x, like), like(y)
    return records, targets.sigmoid() if shares and targets.is_floating_point() else targets


@contextmanager
def made_up_weights(params: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it the weights are near the present ones and none is zero: a layer at zero hides what lies behind it."""
    chance, before = np.random.default_rng(0), {name: p.data for name, p in params.items()}
    try:
        for p in params.values():
            now = p.data.nan_to_num(0, 0, 0).clamp_(-10, 10)
            size = float(now.square().mean().sqrt()) if now.numel() else 0.0
            size = size or 1 / math.sqrt(max(1, math.prod(p.shape[1:])))
            drawn = torch.from_numpy(np.asarray(chance.standard_normal(p.shape, dtype=np.float32)))
            p.data = now.add_(drawn.to(p).mul_(0.3 * size))
        yield
    finally:
        for name, p in params.items():
            p.data = before[name]
