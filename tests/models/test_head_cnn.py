"""The small convolutional head: private by rules, from zero, and with filters that are standardised."""

import pytest
import torch

from fedfdp.core.errors import SettingError
from fedfdp.models import build
from fedfdp.models.zoo import StandardisedConv2d
from fedfdp.privacy.clipping import check_model


def head(**arguments):
    return build("head-cnn", input_shape=(81, 7, 7), outputs=10, seed=0, arguments=arguments)


def test_it_starts_with_every_class_as_likely():
    assert torch.equal(head()(torch.randn(3, 81, 7, 7)), torch.zeros(3, 10))


def test_it_can_be_trained_privately_the_fast_way():
    rules = {layer.kind: layer.rule for layer in check_model(head().train(), torch.randn(3, 81, 7, 7))}
    assert set(rules.values()) == {"fast"}


def test_standardised_filters_by_hand():
    conv = StandardisedConv2d(1, 1, (1, 3), bias=False)
    conv.weight.data = torch.tensor([[[[1.0, 2.0, 6.0]]]])
    # mean 3; deviations −2, −1, 3; variance 14 / 2 = 7; divided by √(7·3)
    found = conv(torch.eye(3).reshape(3, 1, 1, 3)).flatten()
    assert found.tolist() == pytest.approx([-2 / 21**0.5, -1 / 21**0.5, 3 / 21**0.5], rel=1e-4)
    assert not any(layer.rule == "refused" for layer in check_model(head(standardise=True), torch.randn(3, 81, 7, 7)))


def test_channels_that_cannot_be_are_named():
    with pytest.raises(SettingError, match=r"model\.arguments\.channels = 30: a multiple of 4"):
        head(channels=30)
