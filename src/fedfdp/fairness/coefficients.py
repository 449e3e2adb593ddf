"""How much of one record's gradient is wanted: the three forms of fair clipping.

A coefficient sees one record's loss and gradient norm and public values; never another record. Whatever it asks for,
the kernel that applies it keeps ‖c·g‖ ≤ C.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedfdp.privacy.clipping.bounded import ELEMENTWISE, Coefficient

Form = Literal["paper", "bounded", "automatic"]


@dataclass(frozen=True)
class PlainClip:
    """min(1, C/‖g‖): DPSGD. With C = ∞ nothing is clipped."""

    clip: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        return torch.clamp(self.clip / norm, max=1.0)


@dataclass(frozen=True)
class PaperClip:
    """sign(s)·min(|s|, C/‖g‖) with s = 1 + λ(F_ij − F): Eq. 15 with the size of a negative weight clipped too."""

    clip: float
    lam: float
    reference: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = 1 + self.lam * (loss - self.reference)
        return torch.sign(s) * torch.minimum(s.abs(), self.clip / norm)


@dataclass(frozen=True)
class BoundedClip:
    """min(1, C/‖g‖)·clamp(s, 0, κ)/κ: the fairness weight survives clipping, at the price of signal."""

    clip: float
    lam: float
    reference: float
    kappa: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = 1 + self.lam * (loss - self.reference)
        return torch.clamp(self.clip / norm, max=1.0) * torch.clamp(s, 0.0, self.kappa) / self.kappa


@dataclass(frozen=True)
class AutomaticClip:
    """C/(‖g‖ + γ)·clamp(s, 0, κ)/κ: every gradient is brought to about the same size, whatever C is."""

    clip: float
    lam: float
    reference: float
    kappa: float
    gamma: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = 1 + self.lam * (loss - self.reference)
        return self.clip / (norm + self.gamma) * torch.clamp(s, 0.0, self.kappa) / self.kappa


ELEMENTWISE.update({PlainClip, PaperClip, BoundedClip, AutomaticClip})


def fair_clip(form: Form, *, clip: float, lam: float, reference: float, kappa: float, gamma: float) -> Coefficient:
    """The coefficient of that form; λ = 0 weighs nothing, so κ then costs no signal."""
    kappa = kappa if lam > 0 else 1.0
    if form == "paper":
        return PaperClip(clip, lam, reference)
    if form == "bounded":
        return BoundedClip(clip, lam, reference, kappa)
    return AutomaticClip(clip, lam, reference, kappa, gamma)
