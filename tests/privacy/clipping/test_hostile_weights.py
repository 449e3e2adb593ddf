"""Weights, tensors and memory that keep a record, where records go one by one; and weights that come to no harm.

A record that is exchanged must not move the sum of the others at all, or the model is refused.
"""

import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import remembered
from fedfdp.privacy.clipping import clipped_sum

CLIP = 0.5
LARGE = 300 * 300  # numbers of which no copy is kept


class Net(nn.Module):
    """Calls `first` on itself and the records, which may depend on what earlier records left."""

    def __init__(self, first, **held):
        super().__init__()
        self._first, self.one, self.two = first, nn.Linear(6, 8), nn.Linear(8, 3)
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.two(torch.tanh(self.one(self._first(self, x))))


def frozen(*shape):
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)


def far(x):
    return float(x.detach().sum()) > 100


def turned(x, seen):
    return x * (-3.0 if seen else 1.0)


def replaced():
    def first(model, x):
        seen = float(model.kept.sum()) > 0
        model.kept = nn.Parameter(torch.full((1,), float(far(x))), requires_grad=False)
        return turned(x, seen)

    return Net(first, kept=frozen(1))


def written(value):
    def make():
        def first(model, x):
            seen = bool(torch.signbit(model.kept[0]) | model.kept[0].isnan())
            if far(x):
                model.kept.data[0] = value
            return turned(x, seen)

        return Net(first, kept=frozen(2))

    return make


def laid_otherwise(held):
    def make():
        def first(model, x):
            seen = not model.kept.is_contiguous()
            if far(x):
                model.kept.data = model.kept.data.t().contiguous().t()
            return turned(x, seen)

        return Net(first, kept=held(300, 300))

    return make


def lying_elsewhere():
    def first(model, x):
        seen = model.kept.data_ptr() == model.other.data_ptr()
        if far(x):
            model.kept.data = model.other.data
        return turned(x, seen)

    return Net(first, kept=frozen(300, 300), other=frozen(300, 300))


def a_flag(held):
    def make():
        def first(model, x):
            seen = model.kept.requires_grad
            if far(x):
                model.kept.requires_grad_(True)
            return turned(x, seen)

        return Net(first, kept=held(300, 300))

    return make


def hidden_from_the_list():
    class Hiding(Net):
        def named_parameters(self, *args, **kwargs):
            return (known for known in super().named_parameters(*args, **kwargs) if known[0] != "kept")

    def first(model, x):
        seen = float(model.kept[0]) > 0
        model.kept.data[0] = float(far(x))
        return turned(x, seen)

    return Hiding(first, kept=frozen(1))


def tensor_of_minus_zero():
    def first(model, x):
        seen = bool(torch.signbit(model.kept))
        if far(x):
            model.kept.data.fill_(-0.0)
        return turned(x, seen)

    return Net(first, kept=torch.zeros(()))


def module_in_a_list():
    def first(model, x):
        seen = not model.held[0].training
        if far(x):
            model.held[0].eval()
        return turned(x, seen)

    return Net(first, held=[nn.Identity()])


def function_of_numpy():
    kept = []

    def noted(value):
        kept.append(value)
        return sum(kept) > 100

    def first(model, x):
        return turned(x, bool(model.f(float(x.detach().sum()))))

    return Net(first, f=np.frompyfunc(noted, 1, 1))


def array_with_an_attribute():
    class Array(np.ndarray):
        pass

    def first(model, x):
        seen = model.array.seen
        model.array.seen = far(x)
        return turned(x, seen)

    array = np.zeros(2).view(Array)
    array.seen = False
    return Net(first, array=array)


def module_of_the_users():
    library = types.ModuleType("library_of_the_users")
    library.kept = []

    def first(model, x):
        seen = bool(library.kept)
        if far(x):
            library.kept.append(1)
        return turned(x, seen)

    return Net(first)


ATTACKS = [
    replaced,
    written(float("nan")),
    written(-0.0),
    laid_otherwise(frozen),
    laid_otherwise(torch.zeros),
    lying_elsewhere,
    a_flag(frozen),
    a_flag(torch.zeros),
    hidden_from_the_list,
    tensor_of_minus_zero,
    module_in_a_list,
    function_of_numpy,
    array_with_an_attribute,
    module_of_the_users,
]


def each_loss(output, y):
    return functional.cross_entropy(output, y, reduction="none")


def records(changed=False, count=6):
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(0))
    x[0] = 30.0 if changed else x[0]
    return x, torch.arange(count) % 3


@pytest.mark.parametrize("make", ATTACKS, ids=lambda make: make.__qualname__.split(".")[0])
def test_a_record_reaches_no_other_through_it(make):
    sums = []
    try:
        for changed in (False, True):
            torch.manual_seed(1)
            found = clipped_sum(make(), each_loss, *records(changed), clip=CLIP, sizes=[1, 5]).flat
            sums.append(found[1])
    except SettingError:
        return
    assert torch.equal(*sums)


@pytest.mark.parametrize("size", [(2, 3), (300, 300)], ids=["small", "large"])
def test_a_pass_that_fails_leaves_no_record_in_a_weight(size):
    def first(model, x):
        if len(x) == 1 and far(x):
            model.kept.data.fill_(7.0)
            raise RuntimeError("in mid-pass")
        return turned(x, float(model.kept.sum()) > 0) if float(x.detach().sum()) < 1e9 else x

    model = Net(first, kept=frozen(*size))
    x, y = records()
    clipped_sum(model, each_loss, x, y, clip=CLIP, sizes=[6])
    with pytest.raises(RuntimeError, match="mid-pass"):
        clipped_sum(model, each_loss, *records(changed=True), clip=CLIP, sizes=[6])
    assert model.kept.isnan().all() or not model.kept.any()


@pytest.mark.parametrize("turn_off", ["mode", "flag"])
def test_memory_that_nobody_wrote_to_stays_filled(turn_off, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)

    def first(model, x):
        if turn_off == "mode":
            torch.use_deterministic_algorithms(False)
        else:
            torch.utils.deterministic.fill_uninitialized_memory = False
        return turned(x, float(x.detach().sum()) > 1e9)  # a choice by the records: they go one by one

    with pytest.raises(SettingError, match="use_deterministic_algorithms"):
        clipped_sum(Net(first), each_loss, *records(), clip=CLIP, sizes=[6])


@pytest.mark.parametrize("width", [20, 300])
def test_a_refused_model_has_its_weights_as_they_were(width):
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(6, width), nn.Linear(width, width)

        def forward(self, x):
            self.head.weight.data = functional.normalize(self.head.weight.data)
            return self.head(self.first(x))

    model = Cosine()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(SettingError, match="changes its weights"):
        clipped_sum(model, each_loss, *records(), clip=CLIP, sizes=[6])
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("lying", ["every other", "transposed", "expanded"])
def test_large_frozen_weights_may_lie_in_memory_as_they_like(lying):
    base = torch.ones(600, 300)
    weight = {"every other": base[::2], "transposed": base.t(), "expanded": torch.ones(()).expand(300, 300)}[lying]

    def first(model, x):
        return turned(x, float(x.detach().sum()) > 1e9) * model.kept[0, 0]

    model = Net(first, kept=nn.Parameter(weight, requires_grad=False))
    found = clipped_sum(model, each_loss, *records(), clip=CLIP, sizes=[6]).flat
    assert found.isfinite().all()
    assert float(found.norm()) > 0


def test_losses_that_differ_by_what_they_hold_are_not_the_same():
    class Array(np.ndarray):
        pass

    def with_array(number):
        held = np.zeros(2).view(Array)
        held.number = number
        return lambda output, y: each_loss(output, y) * held.number

    def with_module(number):
        held = types.ModuleType("library_of_the_users")
        held.numbers = [number]
        return lambda output, y: each_loss(output, y) * held.numbers[0]

    def with_function(number):
        held = np.frompyfunc(lambda x: x * number, 1, 1)
        return lambda output, y: each_loss(output, y) * float(held(1.0))

    for make in (with_array, with_module, with_function):
        assert remembered(make(1.0)) != remembered(make(1.0001))
    for make in (with_array, with_module):
        assert remembered(make(1.0)) == remembered(make(1.0))
