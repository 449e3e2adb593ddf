"""Clipping by person: all gradients of one person are added up first, and their sum is cut to the bound.

A person then moves the total by no more than the bound, however many records they have.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedfdp.core.trees import Inputs
from fedfdp.privacy.clipping.bounded import Wanted
from fedfdp.privacy.clipping.job import LossFn, Together, one_loss_per_record
from fedfdp.privacy.clipping.kernel import ClippedSum, clipped_sum


def clipped_by_person(
    together: Together,
    loss_fn: LossFn,
    x: Inputs,
    y: Tensor,
    counts: Tensor,
    *,
    clip: float,
    coefficient: Wanted,
) -> ClippedSum:
    """Σ c_p·(Σ_j g_pj) over persons p with ‖c_p·Σ_j g_pj‖ ≤ clip. Records come person after person, `counts` of each.

    The loss of a person, which decides the coefficient and may be released, is the mean over their records. Persons
    with equally many records are processed together.
    """
    starts = torch.cumsum(counts, 0) - counts
    parts: list[tuple[Tensor, ClippedSum]] = []
    for count in torch.unique(counts).tolist() or [1]:
        who = torch.nonzero(counts == count).flatten()
        rows = starts[who, None] + torch.arange(count, device=starts.device)
        total = clipped_sum(
            together,
            partial(_summed, loss_fn=loss_fn),
            x[rows],
            y[rows],
            clip=clip,
            coefficient=partial(_by_mean, coefficient=coefficient, count=count),
        )
        parts.append((who, replace(total, losses=total.losses / count)))
    first = parts[0][1]
    back = torch.argsort(torch.cat([who for who, _ in parts]))
    return ClippedSum(
        flat=first.flat if len(parts) == 1 else torch.stack([part.flat for _, part in parts]).sum(0),
        shapes=tuple((name.removeprefix("model."), shape) for name, shape in first.shapes),
        losses=torch.cat([part.losses for _, part in parts])[back],
        norms=torch.cat([part.norms for _, part in parts])[back],
        coefficients=torch.cat([part.coefficients for _, part in parts])[back],
        skipped=sum(part.skipped for _, part in parts),
        sensitivity=first.sensitivity,
    )


def _summed(output: Tensor, y: Tensor, *, loss_fn: LossFn) -> Tensor:
    persons, records = y.shape[:2]
    return one_loss_per_record(loss_fn(output, y.flatten(0, 1)), persons * records).view(persons, records).sum(1)


def _by_mean(loss: Tensor, norm: Tensor, *, coefficient: Wanted, count: int) -> Tensor:
    return coefficient(loss / count, norm)
