"""The coefficient of a record's gradient: what the caller wants, cut to ‖c·g‖ ≤ clip for every input.

The caller's function is not trusted: it is evaluated record by record, unless its class is listed in ELEMENTWISE (all
shipped ones are), and whatever it returns is cut to a safe value.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.contributions import ROUNDING


class Coefficient(Protocol):
    """What is wanted of a record with this loss and this gradient norm; elementwise. Equal ones compare equal.

    `clip` is C, the bound that ‖c·g‖ keeps and that the noise is scaled by.
    """

    @property
    def clip(self) -> float: ...

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor: ...


Wanted = Callable[[Tensor, Tensor], Tensor]  # the function alone, where C is given beside it
ELEMENTWISE: set[type] = set()  # classes that are known to be elementwise; others are evaluated record by record


def wanted(coefficient: Wanted | None, losses: Tensor, norms: Tensor) -> Tensor:
    """The caller's coefficient of each record, evaluated so that it cannot read another; 1 where none is given."""
    if coefficient is None:
        return torch.ones_like(norms)
    if type(coefficient) in ELEMENTWISE:
        return coefficient(losses, norms)

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
            "coefficient", coefficient, f"must return one number per record, returned shape {tuple(c.shape[1:])}"
        )
    return c


def bounded(c: Tensor, losses: Tensor, norms: Tensor, slack: Tensor | None, clip: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients to apply, ‖c·g‖ ≤ clip, and which records were dropped because something was not finite."""
    # Below the range of normal numbers, rounding is larger than ROUNDING. The safe choice is the smallest normal number
    # for a norm, and zero for a coefficient.
    tiny = torch.finfo(norms.dtype).tiny
    norm, c = norms.double().clamp_min(tiny), c.double()
    if slack is not None:  # matters only where terms cancel; elsewhere the measured norm stands as it is
        norm = norm + (slack - ROUNDING * norm).clamp_min(0)
    everything = losses + norm + c
    bad = (everything - everything).isnan()  # ∞ − ∞ is NaN too
    limit = clip / norm
    c = c.clamp(-limit, limit).masked_fill(bad, 0).to(norms.dtype)
    return c.masked_fill(c.abs() < tiny, 0), bad
