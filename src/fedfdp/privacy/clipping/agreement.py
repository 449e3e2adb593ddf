"""Compares the gradients of a batch with those that autograd gives for each record alone: a check beside the proof."""

import torch
from torch import Tensor

from fedfdp.privacy.clipping.contributions import Contribution, Stored, row_norms, total_norms
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.proof.calls import UnsupportedError

AGREE = 1e-3  # relative; kinks crossed by rounding and another order of summation stay below it
NOTHING = 1e-5  # relative to all of a record's gradient, or to a loss of 1: as good as zero


def stored(contributions: list[Contribution]) -> dict[str, Tensor]:
    """The gradients of a pass that stores them all, by parameter name."""
    return {c.name: c.rows for c in contributions if isinstance(c, Stored)}


def same_losses(alone: Tensor, together: Tensor) -> None:
    """Raises unless a record's loss is the same in a batch as alone: it is released, and it weighs the record."""
    both_lost = ~alone.isfinite() & ~together.isfinite()
    if not bool((both_lost | ((alone - together).abs() <= AGREE * alone.abs() + NOTHING)).all()):
        raise UnsupportedError("a record's loss depends on other records, or on chance")


def same_gradients(reference: dict[str, Tensor], found: list[Contribution]) -> None:
    """Raises unless the contributions give every record's gradient as autograd gives it for the record alone."""
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
