"""Attacks through memory: copies that count as what they are of, memory that nobody wrote to, state out of sight.

Each moved the sum of other holders' records, or all of it, by more than C.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import surroundings
from fedfdp.privacy.clipping import clipped_sum

CLIP = 0.5
FAR = 30 * torch.ones(6)


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def records(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(count) % 3


class Net(nn.Module):
    """`first` is what differs. `size` is a weight: 1 while the model is examined, and then what a coordinator sends."""

    def __init__(self, first: Callable[["Net", Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self._first, self.size = first, nn.Parameter(torch.ones(()))
        self.plain, self.register = torch.zeros(()), 0.0
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(self._first(self, x))))


def moved(model: nn.Module, other: Tensor, loss_fn: Callable[..., Tensor] = cross_entropy, at: int = 0) -> float:
    """By how many times C the sum of the other records moves if this one becomes another."""
    x, y = records(6)
    changed, sums = x.clone(), []
    changed[at] = other
    for batch in (x, changed):
        parts = clipped_sum(model, loss_fn, batch, y, clip=CLIP, sizes=[at, 1, len(x) - at - 1]).flat
        sums.append(parts[[0, 2]].sum(0))
    return float((sums[0] - sums[1]).norm()) / CLIP


def sent(model: Net, size: float) -> Net:
    """The model after it was examined, at weights that a coordinator sends."""
    clipped_sum(model, cross_entropy, *records(3, seed=1), clip=CLIP)
    model.size.data.fill_(size)
    return model


# Copies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [Tensor.clone, lambda zeros: zeros.T.contiguous().T.contiguous()])
def test_a_copy_that_records_are_written_to_is_no_constant(copied):
    """A copy counts as the value that it is of, but has memory of its own, and there are views of that."""

    def first(model: Net, x: Tensor) -> Tensor:
        copy = copied(torch.zeros(len(x), 6))
        seen = copy.view(-1, 6)
        copy.copy_(x)
        return x + (model.size - 100).relu() * seen[0]

    assert moved(sent(Net(first), 1e3), FAR) <= 1e-5


def overwriting(model: Net, x: Tensor) -> Tensor:
    """The first pass over a batch ends with an error if there is an odd record among them, and is done again."""
    x.mul_(1 + (model.size - 100).relu())
    with contextlib.suppress(IndexError):
        functional.embedding((x.abs().amax(1) > 1e9).long(), torch.ones(1, 1))
    return x


def test_a_pass_that_is_repeated_finds_the_records_as_they_were():
    model = sent(Net(overwriting), 101)
    assert moved(model, 1e10 * torch.ones(6)) <= 1e-5
    x, y = records(6)
    clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    assert torch.equal(x, records(6)[0])


def test_copies_of_a_single_record_that_overflow_leave_the_sum_finite():
    """A sum that is not finite is released as that of an empty batch: all other records were gone from it."""
    model = sent(Net(lambda model, x: functional.dropout(x) * model.size), 1e20)
    torch.manual_seed(0)
    alone = torch.tensor([[1e19, 0, 0, 0, 0, 0]]), torch.tensor([1])
    for _ in range(20):
        assert bool(clipped_sum(model, cross_entropy, *alone, clip=CLIP).flat.isfinite().all())


def test_the_losses_that_are_returned_are_those_that_were_proven():
    """All calls are the same for few records and for many; only what is given back differs."""

    def loss_of(output: Tensor, y: Tensor) -> Tensor:
        own = cross_entropy(output, y)
        mixed = own * (own.detach() - own.detach().mean())
        return own if len(y) < 5 else mixed

    assert moved(Net(lambda model, x: x), FAR, loss_fn=loss_of) <= 1e-5


# Memory that nobody wrote to ------------------------------------------------------------------------------------------

UNWRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "Tensor": lambda x: torch.Tensor(1, 4096),
    "empty_strided": lambda x: torch.empty_strided((1, 4096), (4096, 1)),
    "new": lambda x: x.new(1, 4096),
    "resize_": lambda x: torch.zeros(0).resize_(1, 4096),
    "an operator": lambda x: torch.ops.aten.empty.memory_format([1, 4096]),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_new_memory_holds_nothing_of_the_record_before(name):
    def first(model: Net, x: Tensor) -> Tensor:
        assert len(x) == 1  # so that it is run record by record
        left = UNWRITTEN[name](x)[:, 100:106].clone()
        used = x.detach().repeat(1, 683)[:, :4096].clone()
        del used
        return x + left.nan_to_num(0, 0, 0).clamp(-100, 100)

    assert moved(Net(first), FAR) <= 1e-5


@pytest.mark.parametrize("name", ["empty_strided", "an operator"])
def test_unwritten_memory_is_zero_along_a_proven_pass(name):
    model = Net(lambda model, x: x + UNWRITTEN[name](x)[0, :6])
    x, y = records(6)
    used = torch.full((1, 4096), 7.0)
    del used
    zero = Net(lambda model, x: x + 0)
    sums = [clipped_sum(each, cross_entropy, x, y, clip=CLIP).flat for each in (model, zero)]
    torch.testing.assert_close(*sums)


# State out of sight ---------------------------------------------------------------------------------------------------


class Number(int):
    pass


@functools.cache
def stored() -> list[float]:
    return [0.0]


@functools.lru_cache(maxsize=2)
def stored_last(name: str) -> list[float]:
    return [0.0]


def on_a_tensor(model: Net, x: Tensor) -> float:
    before, model.plain.kept = getattr(model.plain, "kept", 0.0), float(x.detach().sum())
    return before


def on_a_number(model: Net, x: Tensor) -> float:
    before, model.register.kept = getattr(model.register, "kept", 0.0), float(x.detach().sum())
    return before


def in_a_cache(model: Net, x: Tensor) -> float:
    before, stored()[0] = stored()[0], float(x.detach().sum())
    return before


def in_a_cache_with_a_limit(model: Net, x: Tensor) -> float:
    before, stored_last("one")[0] = stored_last("one")[0], float(x.detach().sum())
    return before


@pytest.mark.parametrize("keep", [on_a_tensor, on_a_number, in_a_cache, in_a_cache_with_a_limit])
def test_state_in_odd_places_is_refused(keep):
    model = Net(lambda model, x: x * (1 - keep(model, x)))
    model.register = Number(0)
    with pytest.raises(SettingError, match="the forward pass changes it"):
        clipped_sum(model, cross_entropy, *records(6), clip=CLIP)


PACKAGE = """
from torch import nn

LAST, COUNT = [0.0], 0.0

def exchanged(now):
    before, LAST[0] = LAST[0], now
    return before

class InAList(nn.Linear):
    def forward(self, x):
        return super().forward(x * (1 - exchanged(float(x.detach().sum()))))

class InANumber(nn.Linear):
    def forward(self, x):
        global COUNT
        before, COUNT = COUNT, float(x.detach().sum())
        return super().forward(x * (1 - before))

class InAClass(nn.Linear):
    last = [0.0]

    def forward(self, x):
        before, self.last[0] = self.last[0], float(x.detach().sum())
        return super().forward(x * (1 - before))
"""


@pytest.mark.parametrize("kind", ["InAList", "InANumber", "InAClass"])
def test_an_installed_package_keeps_nothing_either(kind, tmp_path, monkeypatch):
    (tmp_path / "hospital_layers.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(surroundings, "_installed", "hospital_layers".__eq__)
    model = getattr(importlib.import_module("hospital_layers"), kind)(6, 3)
    with pytest.raises(SettingError, match="the forward pass changes it"):
        clipped_sum(model, cross_entropy, *records(6), clip=CLIP)


def by_shape(model: Net, x: Tensor) -> Tensor:
    before, far = model.plain.dim(), float(x.detach().sum()) > 100
    model.plain.data = torch.zeros([1] * far)
    return x * (1 - 3 * before)


def test_a_tensor_gets_its_shape_back():
    assert moved(Net(by_shape), FAR) <= 1e-5


class Written(torch.autograd.Function):
    """Keeps the record in the model when the gradient comes."""

    @staticmethod
    def forward(ctx, model, x):
        ctx.model, ctx.x = model, x.detach().clone()
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.model.plain = ctx.x.sum()
        return None, grad


def by_a_hook(model: Net, x: Tensor) -> Tensor:
    h = model.size * x + model.register
    h.register_hook(lambda grad: setattr(model, "register", float(x.detach().sum())))
    return h


@pytest.mark.parametrize("first", [lambda model, x: Written.apply(model, model.size * x + model.plain), by_a_hook])
def test_what_the_backward_pass_keeps_is_put_back(first):
    assert moved(Net(first), FAR) <= 1e-5
