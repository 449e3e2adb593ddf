"""Attacks by what a batch is: a record's place in it, how many there are, and what is left from one to the next.

On the code before these the layer rules let a record move others' sums by up to 512·C through the place of the others,
the loop by 35·C through a list that is empty again when the chunk ends, and torch.func by 54·C through a text.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping import clipped_sum, record_losses
from fedfdp.privacy.clipping.plan import path_of

CLIP = 0.5


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


class Net(nn.Module):
    """Records of 6 numbers. `apply` is what differs; `gate` is 0 for the first records, and then every other one is 1.
    A trial of few records sees zeros only."""

    def __init__(self, apply: Callable[["Net", Tensor], Tensor], gate: Tensor) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.two, self._apply_to = nn.Linear(6, 2), apply
        self.register_buffer("gate", gate)

    def forward(self, x: Tensor) -> Tensor:
        return self._apply_to(self, x)


def gate(size: int = 4096, dtype: torch.dtype = torch.int64) -> Tensor:
    found = torch.zeros(size, dtype=dtype)
    found[12::2] = 1
    return found


def place(m: Net, x: Tensor) -> Tensor:
    """From 0 to 1, as a record's place in the batch. From 1 to 1 + 1e-13 it looks like rounding."""
    return (torch.linspace(1, 1 + 1e-13, len(x), dtype=torch.float64) - 1) * 1e13


ATTACKS = {
    "slice": (lambda m, x: m.two(x) * (1 - m.gate[: len(x), None]), gate()),
    "mask": (lambda m, x: m.two(x).masked_fill(m.gate[: len(x), None], 0.0), gate(dtype=torch.bool)),
    "large": (lambda m, x: m.two(x) * (1 - m.gate[: len(x), None]), gate(2**18 + 1, torch.float32)),
    "narrow": (lambda m, x: m.two(x) * (1 - m.gate.narrow(0, 0, len(x))[:, None]), gate()),
    "split": (lambda m, x: m.two(x) * (1 - m.gate.split([len(x), 4096 - len(x)])[0][:, None]), gate()),
    "count": (lambda m, x: m.two(x) * (1 - m.gate[len(x)]), gate(dtype=torch.float32)),
    "column": (lambda m, x: m.two(x) * (1 - m.gate.expand(3, -1)[x[:, :1].long() * 0, len(x)]), gate()),
    "linspace": (lambda m, x: m.two(x) * (1 - ((v := place(m, x)) > 0.7)[:, None] * (v < 0.95)[:, None].int()), gate()),
    "clamp": (
        # A number that no record of a trial comes near: 2e9 is cut to 1e9 and the number of records.
        lambda m, x: m.two(x) * (1 - (torch.clamp(x[:, :1].double() * 0 + 2e9, max=len(x) + 10**9) % 2).float()),
        gate(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_record_learns_its_place_or_how_many_there_are(attack, caplog):
    model = Net(*ATTACKS[attack])
    x, y = torch.ones(64, 6), torch.arange(64) % 2
    both = [clipped_sum(model, cross_entropy, x[first:], y[first:], clip=CLIP).flat for first in (0, 1)]
    assert float((both[0] - both[1]).norm()) <= CLIP * (1 + 1e-5)
    assert path_of(model)[0] != "rules"


@pytest.mark.parametrize(
    "honest",
    [
        lambda m, x: m.two(x) + m.gate[:2].float().expand(len(x), 2),
        lambda m, x: m.two(x) + m.gate[None, :2].repeat(len(x), 1),
        lambda m, x: m.two(x) + torch.zeros(len(x), 2),
        lambda m, x: m.two(x) + m.gate[None, :2].expand(len(x), -1)[0],
        lambda m, x: m.two(x.view(len(x), 3, 2).flatten(1)),
        lambda m, x: m.two(torch.cat([x[:, 1:], torch.ones(len(x), 1)], 1)),
    ],
)
def test_what_every_record_gets_alike_stays_fast(honest):
    model = Net(honest, gate())
    clipped_sum(model, cross_entropy, torch.randn(5, 6), torch.arange(5) % 2, clip=CLIP)
    assert path_of(model)[0] == "rules"


class Box(nn.Module):
    """Remembers a marked record for the next few, and has forgotten it when the batch ends."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.two, self.box = nn.Linear(6, 2), []

    def forward(self, x: Tensor) -> Tensor:
        marked = float(x[0, 0]) > 50
        if self.box:
            x = -x
            self.box.append(1)
            if len(self.box) > 4:
                self.box.clear()
        elif marked:
            self.box.append(1)
        return self.two(x)


@pytest.mark.parametrize("compute", [lambda *given: clipped_sum(*given, clip=CLIP), record_losses])
def test_what_is_forgotten_before_the_chunk_ends_is_found(compute):
    x, y = torch.ones(16, 6), torch.zeros(16, dtype=torch.int64)
    model = Box()
    compute(model, cross_entropy, x, y)
    x[3, 0] = 90.0
    with pytest.raises(SettingError, match=r"model\.box = 'changed'"):
        compute(model, cross_entropy, x, y)


class Aborted(nn.Module):
    """Keeps a batch in a pass that does not follow the proven one; the first record alone reads and drops it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.two, self.box = nn.Linear(6, 2), []

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 4:
            self.box.append(x)
            x = x + 0
        elif self.box:
            x = x + 0 if len(x) > 1 else x * (1 - 2 * (self.box.pop()[:, 0].amax() > 50).float())
        return self.two(x)


def test_what_an_aborted_pass_left_behind_is_found():
    x, y = torch.ones(16, 6), torch.zeros(16, dtype=torch.int64)
    model = Aborted()
    clipped_sum(model, cross_entropy, x[:4], y[:4], clip=CLIP)
    with pytest.raises(SettingError, match=r"model\.box = 'changed'"):
        clipped_sum(model, cross_entropy, x, y, clip=CLIP)


@pytest.mark.parametrize("write", [repr, str, lambda x: f"{x}"])
def test_no_record_reads_the_others_as_text(write):
    """Within torch.func the text of one record shows all of them."""
    model = Net(lambda m, x: m.two(-x if "7.7700e+01" in write(x) else x), gate())
    x, y = torch.ones(16, 6), torch.zeros(16, dtype=torch.int64)
    sums = []
    for value in (1.0, 77.7):
        x[3, 0] = value
        sums.append(clipped_sum(model, cross_entropy, x, y, clip=CLIP, sizes=[3, 1, 12]).flat[[0, 2]])
    assert torch.equal(*sums)
    assert path_of(model)[0] == "loop"
