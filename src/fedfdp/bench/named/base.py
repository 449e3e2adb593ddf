"""A named model of another library's: random weights, a small configuration, made-up records. Nothing is downloaded."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

CLASSES = 10
TOKENS, LENGTH = 1000, 64  # words of a text model, and of a record
SIDE = 64  # of an image

# The compiled operations of torchvision: none of the models below calls one, but its import wants them declared.
_OPERATIONS = """
nms qnms deform_conv2d roi_align qroi_align roi_pool ps_roi_align ps_roi_pool box_iou_rotated _deform_conv2d_backward
_roi_align_backward _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward
"""


@cache
def declared() -> torch.library.Library | None:
    """Lets torchvision be imported where its compiled part was made for another torch."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in _OPERATIONS.split():
            library.define(f"{name}(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
        return library
    return None


@dataclass(frozen=True)
class Named:
    """One line of the table: how the model is made, and what a record of it is."""

    package: str
    name: str
    make: Callable[[], nn.Module]
    kind: str = "text"  # of its records, a key of RECORDS
    batch: int = 16
    classes: int = CLASSES

    def build(self) -> nn.Module:
        """The same weights at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().train()

    def records(self, count: int) -> tuple[Tensor, Tensor]:
        """So many records and their classes, the same at every call."""
        chance = torch.Generator().manual_seed(0)
        x = RECORDS[self.kind](count, chance)
        return x, torch.randint(self.classes, (count,), generator=chance)


def _numbers(*shape: int) -> Callable[[int, torch.Generator], Tensor]:
    return lambda count, chance: torch.randn(count, *shape, generator=chance)


RECORDS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "text": lambda count, chance: torch.randint(5, TOKENS, (count, LENGTH), generator=chance),
    "image": _numbers(3, SIDE, SIDE),
    "sound": _numbers(4000),
    "spectrogram": _numbers(64, 64),
    "sequence": _numbers(32, 64),
    "vector": _numbers(256),
}


class Output(nn.Module):
    """The one tensor of a model's output that is trained for: an attribute, or the mean over places of one."""

    def __init__(self, model: nn.Module, field: str = "logits", *, mean: bool = False) -> None:
        super().__init__()
        self.model, self.field, self.mean = model, field, mean

    def forward(self, x: Tensor) -> Tensor:
        # Without a mask many models look for padding in the records, one for all of them: a meeting of records.
        given = {} if x.is_floating_point() else {"attention_mask": torch.ones_like(x)}
        found: Tensor = getattr(self.model(x, **given), self.field)
        return found.mean(1) if self.mean else found


class Pooled(nn.Module):
    """A linear head on the mean over places of what a model makes of a record. `twice`: a decoder reads it too."""

    def __init__(self, model: nn.Module, width: int, *, twice: bool = False) -> None:
        super().__init__()
        self.model, self.twice, self.head = model, twice, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output = self.model(x, decoder_input_ids=x) if self.twice else self.model(x)
        found: Tensor = self.head(output.last_hidden_state.mean(1))
        return found
