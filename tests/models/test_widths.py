"""Narrower built-in models nest in the full ones, and compute what the leading channels of those compute."""

import pytest
import torch

from fedfdp.algorithms.parts import check_nested
from fedfdp.core.errors import SettingError
from fedfdp.models import Model, build

SHAPES = {"paper-cnn": (1, 28, 28), "small-cnn": (1, 28, 28), "mlp": (1, 8, 8)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("width", [0.5, 0.25])
def test_every_parameter_is_a_leading_slice(name, width):
    full, narrow = (
        Model(name).build(input_shape=SHAPES[name], outputs=10, seed=0, width=part) for part in (1.0, width)
    )
    check_nested("clinic", dict(narrow.named_parameters()), dict(full.named_parameters()))
    count = sum(p.numel() for p in narrow.parameters()) / sum(p.numel() for p in full.parameters())
    assert width**2 * 0.9 < count < width * 1.1


def test_slices_are_the_full_model_with_its_other_channels_silenced():
    """With all weights out of the other channels at 0, the full model's outputs are the narrow one's."""
    full, narrow = (Model("small-cnn").build(input_shape=(1, 28, 28), outputs=10, seed=0, width=w) for w in (1.0, 0.5))
    with torch.no_grad():
        for whole, part in zip(full.parameters(), narrow.parameters(), strict=True):
            inside = tuple(slice(size) for size in part.shape)
            part.copy_(whole[inside])
            if whole.dim() > 1 and whole.shape[1] != part.shape[1]:
                whole[:, part.shape[1] :] = 0
    x = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(full(x), narrow(x), rtol=1e-4, atol=1e-5)


def test_widths_out_of_range_and_models_without(tmp_path):
    with pytest.raises(SettingError, match=r"model\.widths\.clinic = 1\.5: above 0, at most 1"):
        Model(widths={"clinic": 1.5})
    with pytest.raises(SettingError, match=r"linear takes no width"):
        Model("linear").build(input_shape=(4,), outputs=2, seed=0, width=0.5)
    with pytest.raises(SettingError, match=r"model\.arguments\.width = 0: above 0"):
        build("mlp", input_shape=(4,), outputs=2, seed=0, arguments={"width": 0})
