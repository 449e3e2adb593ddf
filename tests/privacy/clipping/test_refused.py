"""Layers that cannot be private are refused by name, and what the fix says is no longer refused."""

import pytest
import torch
from torch import nn

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.refused import fault_of, trainable

REFUSED = {
    "batch norm": (lambda: nn.BatchNorm2d(6), "replace it by nn.GroupNorm(2, 6)"),
    "batch norm without statistics": (
        lambda: nn.BatchNorm1d(64, track_running_stats=False).eval(),
        "nn.GroupNorm(32, 64)",
    ),
    "instance norm": (lambda: nn.InstanceNorm2d(3, track_running_stats=True), "set track_running_stats=False"),
    "embedding": (lambda: nn.Embedding(5, 2, max_norm=1.0), "set max_norm=None"),
    "embedding bag": (lambda: nn.EmbeddingBag(5, 2, max_norm=1.0), "set max_norm=None"),
}
ALLOWED = {
    "batch norm in evaluation mode": lambda: nn.BatchNorm2d(6).eval(),
    "instance norm": lambda: nn.InstanceNorm2d(3),
    "instance norm in evaluation mode": lambda: nn.InstanceNorm2d(3, track_running_stats=True).eval(),
    "embedding": lambda: nn.Embedding(5, 2),
    "linear": lambda: nn.Linear(2, 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name_with_a_fix_that_mends_it(name):
    make, fix = REFUSED[name]
    model = nn.Sequential(nn.Linear(2, 2), make())
    with pytest.raises(SettingError, match=rf"^model\.1 = '{type(model[1]).__name__}'") as error:
        trainable(model)
    assert str(error.value).endswith(fix)
    model[1] = fault_of(model[1]).mend()
    assert fault_of(model[1]) is None
    assert set(trainable(model)) >= {"0.weight", "0.bias"}


@pytest.mark.parametrize("name", ALLOWED)
def test_it_is_allowed(name):
    assert fault_of(ALLOWED[name]()) is None


def test_a_frozen_batch_norm_is_replaced_by_a_frozen_group_norm():
    layer = nn.BatchNorm1d(4).requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in fault_of(layer).mend().parameters())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_has_no_substitute():
    script = torch.jit.script(nn.Linear(2, 2))
    assert fault_of(script).mend() is script
