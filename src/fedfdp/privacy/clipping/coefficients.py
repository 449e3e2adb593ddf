"""What a record's gradient is multiplied by: what the caller wants, cut to ‖c·g‖ ≤ clip for every input.

Never trusts the caller's function: it sees one record at a time, and whatever it returns ends as a safe value.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedfdp.errors import SettingError

Coefficient = Callable[[Tensor, Tensor], Tensor]

ROUNDING = 1e-5  # how far, relatively, single precision may carry a summed gradient beyond the norm measured for it


def wanted(coefficient: Coefficient | None, losses: Tensor, norms: Tensor) -> Tensor:
    """The caller's coefficient of each record, evaluated so that it cannot read another; 1 where none is given."""
    if coefficient is None:
        return torch.ones_like(norms)

    def alone(loss: Tensor, norm: Tensor) -> Tensor:
        return torch.as_tensor(coefficient(loss, norm), dtype=norm.dtype, device=norm.device)

    try:
        c = torch.vmap(alone)(losses, norms)
    except (RuntimeError, IndexError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingError(
            "coefficient",
            coefficient,
            f"must be elementwise in torch operations ({reason})",
            "use torch.where, torch.minimum",
        ) from error
    if c.shape != norms.shape:
        raise SettingError(
            "coefficient", coefficient, f"must give one number a record, gave shape {tuple(c.shape[1:])}"
        )
    return c


def bounded(c: Tensor, losses: Tensor, norms: Tensor, slack: Tensor, clip: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients to apply, ‖c·g‖ ≤ clip, and which records were dropped because something was not finite."""
    bad = ~(losses.isfinite() & norms.isfinite() & slack.isfinite() & c.isfinite())
    norm = norms.double()
    # Rounding matters only where terms cancel or underflow; elsewhere the measured norm stands as it is.
    largest = norm + (slack - ROUNDING * norm).clamp_min(0)
    limit = clip.double() / largest
    c = c.double().clamp(-limit, limit).masked_fill(bad, 0).to(norms.dtype)
    # Below the normal range a number is rounded by more than rounding allows: zero is the safe neighbour.
    return torch.where(c.abs() < torch.finfo(c.dtype).tiny, 0, c), bad
