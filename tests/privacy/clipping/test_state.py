"""Weights that a pass changes are found, and hold nothing of a record afterwards."""

import pytest
import torch
from torch import nn

from fedfdp.privacy.clipping.state import COPIED, Weights


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.tensor([1.0, torch.nan, -2.0]))
        self.large = nn.Parameter(torch.full((2, COPIED), 0.5).T)  # not contiguous
        self.narrow = nn.Parameter(torch.ones(COPIED + 1, dtype=torch.bfloat16), requires_grad=False)


def test_no_change_is_none_with_nan_either():
    model = Net()
    model.large.data[3, 1] = torch.nan
    assert Weights(model).changed() == []


def test_small_weights_are_put_back():
    model = Net()
    before = Weights(model)
    model.small.data[2] = 7.0
    assert before.changed() == ["small"]
    assert model.small.data.nan_to_num(0).tolist() == [1.0, 0.0, -2.0]
    assert before.changed() == []


@pytest.mark.parametrize("name", ["large", "narrow"])
def test_of_large_weights_nothing_is_left(name):
    model = Net()
    before = Weights(model)
    weight = model.get_parameter(name)
    weight.data[-1] = 0.75
    assert before.changed() == [name]
    assert bool(weight.isnan().all())


@pytest.mark.parametrize("other", [torch.Tensor.double, torch.flatten, lambda w: w.flip(0)])
def test_another_type_shape_or_order_is_a_change(other):
    model = Net()
    model.large.data[0] = 2.0
    before = Weights(model)
    model.large.data = other(model.large.data)
    assert before.changed() == ["large"]
