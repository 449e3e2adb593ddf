"""Layers and parameters are those of nn.Module's own iterators, under the same names, in the same order."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from fedfdp.privacy.clipping.modules import named_layers, trained

SHARED = nn.Linear(3, 3)


class Empty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.absent: nn.Module | None = None
        self.register_module("nothing", None)
        self.register_parameter("no_bias", None)
        self.scale = nn.Parameter(torch.ones(3))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.ModuleList([nn.Tanh()])}))
    model[1]["a"].weight = nn.Parameter(model[0].weight.data.T.clone())
    model[1]["b"].append(nn.Linear(4, 3))
    model[1]["b"][1].weight = model[1]["a"].weight
    return model


MODELS = {
    "nested": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))),
    "the same layer three times": lambda: nn.Sequential(SHARED, nn.Sequential(nn.Tanh(), SHARED), SHARED),
    "tied weights": tied,
    "absent parts": lambda: nn.Sequential(Empty(), nn.Linear(3, 3, bias=False), Empty()),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2),
    "parametrised": lambda: parametrizations.weight_norm(nn.Linear(3, 3)),
    "a single layer": lambda: nn.Linear(2, 2),
    "nothing to train": lambda: nn.Tanh(),
}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_of_the_module(name):
    model = MODELS[name]()
    layers = named_layers(model)
    assert [(n, id(layer)) for n, layer in layers] == [(n, id(layer)) for n, layer in model.named_modules()]
    right = [(n, id(p)) for n, p in model.named_parameters()]
    assert [(n, id(p)) for n, p in trained(layers).items()] == right


def test_only_what_requires_a_gradient():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    assert list(trained(named_layers(model))) == ["0.bias", "1.weight", "1.bias"]
