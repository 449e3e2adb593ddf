"""How much of one record's gradient is wanted: plain clipping, and the forms of fair clipping by name.

A coefficient sees one record's loss and gradient norm and public values; never another record. Whatever it asks for,
the kernel that applies it keeps ‖c·g‖ ≤ C. A new form is one class derived from `FairClip` and one entry in `FORMS`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.privacy.clipping.bounded import ELEMENTWISE, Coefficient


@dataclass(frozen=True)
class PlainClip:
    """min(1, C/‖g‖): DPSGD. With C = ∞ nothing is clipped."""

    clip: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        return torch.clamp(self.clip / norm, max=1.0)


@dataclass(frozen=True)
class FairClip(ABC):
    """Clipping with the fairness weight s = 1 + λ(F_ij − F). A form may have fields `kappa` and `gamma` too.

    It must be elementwise: forms are evaluated for all records at once, so one that reads another record's loss or norm
    would break the guarantee. tests/fairness/test_coefficients.py tries every form in `FORMS`.
    """

    clip: float
    lam: float
    reference: float  # F

    private_only: ClassVar[bool] = False  # whether it means nothing without a bound C

    @abstractmethod
    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor: ...

    def weight(self, loss: Tensor) -> Tensor:
        return 1 + self.lam * (loss - self.reference)


@dataclass(frozen=True)
class PaperClip(FairClip):
    """sign(s)·min(|s|, C/‖g‖): Eq. 15 with the size of a negative weight clipped too."""

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = self.weight(loss)
        return torch.sign(s) * torch.minimum(s.abs(), self.clip / norm)


@dataclass(frozen=True)
class BoundedClip(FairClip):
    """min(1, C/‖g‖)·clamp(s, 0, κ)/κ: the fairness weight survives clipping, at the price of signal."""

    kappa: float

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = self.weight(loss)
        return torch.clamp(self.clip / norm, max=1.0) * torch.clamp(s, 0.0, self.kappa) / self.kappa


@dataclass(frozen=True)
class AutomaticClip(FairClip):
    """C/(‖g‖ + γ)·clamp(s, 0, κ)/κ: every gradient is brought to about the same size, whatever C is."""

    kappa: float
    gamma: float

    private_only: ClassVar[bool] = True

    def __call__(self, loss: Tensor, norm: Tensor) -> Tensor:
        s = self.weight(loss)
        return self.clip / (norm + self.gamma) * torch.clamp(s, 0.0, self.kappa) / self.kappa


FORMS: dict[str, type[FairClip]] = {"paper": PaperClip, "bounded": BoundedClip, "automatic": AutomaticClip}
ELEMENTWISE.update({PlainClip, *FORMS.values()})
if TYPE_CHECKING:
    Form = str
else:
    Form = Literal[tuple(FORMS)]  # so that a config is checked against the names above


def form_named(name: str) -> type[FairClip]:
    """The form of that name; a SettingError where there is none."""
    if name not in FORMS:
        raise SettingError("algorithm.coefficients", name, nearest(name, FORMS))
    return FORMS[name]


def fair_clip(form: Form, *, clip: float, lam: float, reference: float, kappa: float, gamma: float) -> Coefficient:
    """The coefficient of that form; λ = 0 weighs nothing, so κ then costs no signal."""
    kind = form_named(form)
    given = {"clip": clip, "lam": lam, "reference": reference, "kappa": kappa if lam > 0 else 1.0, "gamma": gamma}
    return kind(**{field.name: given[field.name] for field in fields(kind)})
