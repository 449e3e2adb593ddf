"""Attacks on the proof itself: dependences that random numbers do not show, memory and state out of its sight.

Each moved the sum by more than C on the layer rules or in the loop. `moved` replaces one record and looks at the sum of
the others, which come from another holder: it must not move at all.
"""

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.plan import _plans

CLIP = 0.5


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def records(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(count) % 3


class Net(nn.Module):
    """`first` is what differs. `size` is a weight: 1 while the model is examined, and then what a coordinator sends."""

    def __init__(self, first: Callable[["Net", Tensor], Tensor] = lambda model, x: x) -> None:
        super().__init__()
        torch.manual_seed(1)
        self._first, self.size = first, nn.Parameter(torch.ones(()))
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(self._first(self, x))))


def moved(model: nn.Module, x: Tensor, y: Tensor, other: Tensor) -> float:
    """By how many times C the others' sum moves when the record in the middle becomes another one."""
    changed, at = x.clone(), len(x) // 2
    changed[at] = other
    sums = []
    for batch in (x, changed):
        torch.manual_seed(0)
        parts = clipped_sum(model, cross_entropy, batch, y, clip=CLIP, sizes=[at, 1, len(x) - at - 1]).flat
        sums.append(parts[[0, 2]].sum(0))
    return float((sums[0] - sums[1]).norm()) / CLIP


# What random numbers do not show --------------------------------------------------------------------------------------


def flat(x: Tensor) -> Tensor:
    """Record by record."""
    return x.reshape(-1)


def across(x: Tensor) -> Tensor:
    """Column by column: at the same place there is another record."""
    return x.T.reshape(-1)


HIDDEN: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "by a large epsilon": lambda model, x: functional.normalize(model.size * x, dim=0, eps=1e12),
    "by an epsilon over the batch": lambda model, x: functional.rms_norm(model.size * x.T, (len(x),), eps=1e24).T,
    "by a small factor": lambda model, x: torch.add(flat(x), model.size * across(x), alpha=1e-15),
    "by a condition on weights": lambda model, x: torch.where(model.size > 100, across(x), flat(x)),
    "where no number is missing": lambda model, x: flat(x).masked_fill((model.size * across(x) * 2e23).isinf(), -9.0),
    "where none is zero": lambda model, x: (
        flat(x) + 9 * torch.heaviside((flat(x) + 1e12 / model.size).relu().detach(), across(x).detach())
    ),
    "where none are equal": lambda model, x: (
        flat(x) * (1 - 5 * ((flat(x) + 1e14 / model.size).round() == (across(x) + 1e14 / model.size).round()))
    ),
    "by an answer that is always yes": lambda model, x: (
        flat(x) * (1 - 3 * (across(x)[:, None] > torch.linspace(-1e9, 9e9, 64) / model.size).any(1))
    ),
    "by the chance of a draw": lambda model, x: flat(x) * torch.bernoulli((across(x) * (model.size - 1)).sigmoid()),
    "by the spread of a draw": lambda model, x: torch.normal(flat(x), (1 - 1 / model.size) * across(x).abs()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_random_numbers_do_not_show(name):
    x, y = records(24)
    model = Net(lambda model, x: HIDDEN[name](model, x).view(-1, 6))
    clipped_sum(model, cross_entropy, *records(3), clip=CLIP)
    model.size.data.fill_(1e14)
    assert moved(model, x, y, 30 * torch.ones(6)) <= 1e-5


def _late(index: Callable[[int], object], shape: tuple[int, ...]) -> Callable[[Net, Tensor], Tensor]:
    """Writes to what lies beyond the fifteenth record, by an index that takes another number of dimensions."""

    def first(model: Net, x: Tensor) -> Tensor:
        h = x.T.clone().view(*shape, len(x))
        h[index(15)] = 0
        return h.view(6, -1).T

    return first


LATE = {
    "with True": _late(lambda start: (True, slice(None), slice(start, None)), (6,)),
    "with lists in a list": _late(lambda start: ([[True] * 3] * 2, slice(start, None)), (2, 3)),
}


@pytest.mark.parametrize("name", LATE)
def test_writing_to_late_records_by_an_odd_index(name):
    x, y = records(24)
    model = Net(LATE[name])
    whole = clipped_sum(model, cross_entropy, x, y, clip=CLIP).flat
    rest = clipped_sum(model, cross_entropy, x[1:], y[1:], clip=CLIP).flat
    assert float((whole - rest).norm()) <= CLIP * (1 + 1e-4)


# Which way a record goes ----------------------------------------------------------------------------------------------


def otherwise_alone(x: Tensor) -> Tensor:
    """Short records, alone, are turned round. None of those that a model is examined with is short."""
    return torch.where(x.abs().amax(1, keepdim=True) < 0.2, -9 * x, x) if len(x) == 1 else x


def by_shape(model: Net, x: Tensor) -> Tensor:
    found = x[x.abs().amax(1) > 1e9]
    return otherwise_alone(x) * (1 if len(found) == 0 else 2)


def by_error(model: Net, x: Tensor) -> Tensor:
    with contextlib.suppress(IndexError):
        functional.embedding((x.abs().amax(1) > 1e9).long(), torch.ones(1, 1))
    return otherwise_alone(x)


@pytest.mark.parametrize("first", [by_shape, by_error])
def test_a_record_does_not_decide_which_way_its_neighbours_go(first):
    x, y = records(24)
    model = Net(first)
    clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    assert moved(model, 0.05 * x, y, 1e10 * torch.ones(6)) <= 1e-5


class OwnRule(torch.autograd.Function):
    """Says itself how it is vectorised: it is given all records, and mixes many of them."""

    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def vmap(info, in_dims, x):
        return (x - x.mean(0) if info.batch_size > 13 else x * 1), 0


class OwnRuleInside(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.two(OwnRule.apply(torch.tanh(self.one(x))))


def test_a_rule_of_the_models_own_for_many_records_is_not_used():
    x, y = records(24)
    assert moved(OwnRuleInside(), x, y, 30 * torch.ones(6)) <= 1e-5


# Memory and state -----------------------------------------------------------------------------------------------------


def through_numpy(model: Net, x: Tensor) -> Tensor:
    """A view of the memory that is taken before any record is there."""
    h = torch.zeros(len(x), 6)
    view = h.numpy()
    h += x
    if len(view) > 8:
        view -= view.mean(0)
    return h


def test_memory_is_not_handed_out_before_records_are_written_to_it():
    x, y = records(24)
    assert moved(Net(through_numpy), x, y, 30 * torch.ones(6)) <= 1e-5


class Flag(Net):
    """One bit, as an attribute that says yes or no. Only one record sets it, and none of the made-up ones does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def forward(self, x: Tensor) -> Tensor:
        sign = -1.0 if self.seen else 1.0
        if float(x.detach()[0, 0]) == 0.125:
            self.seen = True
        return super().forward(sign * x)


class Slot(Net):
    __slots__ = ("kept",)

    def __init__(self) -> None:
        super().__init__()
        Slot.kept.__set__(self, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        before = self.kept
        Slot.kept.__set__(self, float(x.detach().sum()))
        return super().forward(x * (1 - before))


class OnAFrozenWeight(Net):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(()), requires_grad=False)
        self.frozen.kept = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before, self.frozen.kept = self.frozen.kept, float(x.detach().sum())
        return super().forward(x * (1 - before))


@pytest.mark.parametrize(("kind", "place"), [(Flag, "seen"), (Slot, "kept"), (OnAFrozenWeight, "frozen")])
def test_state_that_was_not_looked_at_is_refused_with_its_place(kind, place):
    x, y = records(24)
    x[5, 0] = 0.125
    with pytest.raises(SettingError, match=rf"model\.{place} = .*forward pass changes it"):
        clipped_sum(kind(), cross_entropy, x, y, clip=CLIP)


# Numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("where", ["loss", "weight"])
def test_norms_are_never_taken_in_half_precision(dtype, where):
    """With a loss in half precision the coefficient had three digits: a record moved the sum by 1.005·C."""
    x, y = records(24)
    if where == "loss":
        model = nn.Sequential(Net(), _Cast(dtype))
    else:
        model = Net(lambda model, x: (x.to(dtype) * model.one.weight[0].to(dtype)).float())
    for i in range(len(x)):
        one = clipped_sum(model, cross_entropy, x[i : i + 1], y[i : i + 1], clip=1e-3).flat
        assert float(one.double().norm()) <= 1e-3 * (1 + 1e-5)


class _Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_those_of_dense_ones(kind):
    sums = []
    x, y = torch.arange(40).view(8, 5) % 9, torch.arange(8) % 3
    for sparse in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(kind(9, 4, sparse=sparse), nn.Flatten(), nn.LazyLinear(3))
        model(x)
        sums.append(clipped_sum(model, cross_entropy, x, y, clip=CLIP).flat)
        assert [plan.how for plan in _plans[model].values()] == ["rules"]
    torch.testing.assert_close(*sums)
