"""A rule is a class and a line: every registered one is held to autograd, and one more needs nothing else."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.privacy.clipping import check_model
from fedfdp.privacy.clipping.layers.convolution import Convolution, Transposed
from fedfdp.privacy.clipping.layers.embedding import Embedding
from fedfdp.privacy.clipping.layers.in_steps import WITH_WEIGHTS
from fedfdp.privacy.clipping.layers.linear import Addmm, Linear, Matmul
from fedfdp.privacy.clipping.layers.normalisation import GroupNorm, LayerNorm
from fedfdp.privacy.clipping.layers.recurrent import Cell, Recurrent
from fedfdp.privacy.clipping.layers.registry import REGISTERED, RULES
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule
from fedfdp.privacy.clipping.proof.calls import name_of
from fedfdp.privacy.clipping.proof.functions import condition
from fedfdp.privacy.clipping.proof.places import Reference
from per_record import assert_parity, by_autograd, head


class Own(nn.Module):
    """A parameter of its own, used in one way."""

    def __init__(self, use, *shape: int) -> None:
        super().__init__()
        self.own, self.use = nn.Parameter(torch.rand(*shape)), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(x, self.own)


class First(nn.Module):
    """The first output of a layer, or what it gives at one place."""

    def __init__(self, layer: nn.Module, place: int | None = None) -> None:
        super().__init__()
        self.layer, self.place = layer, place

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0] if self.place is None else self.layer(x[:, self.place])


CHANCE = torch.Generator().manual_seed(0)
NUMBERS, IMAGES = torch.randn(5, 3, 4, generator=CHANCE), torch.randn(5, 4, 6, 6, generator=CHANCE)
TOKENS = torch.arange(30).view(5, 6) % 7
ALONE = {
    Linear: (lambda: nn.Linear(4, 6), NUMBERS),
    Convolution: (lambda: nn.Conv2d(4, 6, 3), IMAGES),
    Embedding: (lambda: nn.Embedding(7, 3), TOKENS),
    LayerNorm: (lambda: nn.LayerNorm(4), NUMBERS),
    GroupNorm: (lambda: nn.GroupNorm(2, 4), IMAGES),
    Matmul: (lambda: Own(lambda x, own: x @ own, 4, 6), NUMBERS),
    Addmm: (lambda: Own(lambda x, own: torch.addmm(own[0], x.flatten(0, 1), own).view(x.shape), 4, 4), NUMBERS),
    Transposed: (lambda: nn.ConvTranspose2d(4, 6, 3), IMAGES),
    Recurrent: (lambda: First(nn.LSTM(4, 6, batch_first=True)), NUMBERS),
    Cell: (lambda: First(nn.GRUCell(4, 4), place=1), NUMBERS),
}


def test_every_rule_is_tried_here():
    assert {type(rule) for rule, _ in REGISTERED} == set(ALONE)


@pytest.mark.parametrize("rule", ALONE)
def test_a_rule_gives_what_autograd_gives(rule):
    torch.manual_seed(0)
    make, x = ALONE[rule]
    assert_parity(head(nn.Sequential(make(), nn.Tanh()), x), x, "rules", by_autograd)


def test_no_two_rules_take_the_same_function():
    counts = Counter(function for rule, _ in REGISTERED for function in rule.functions)
    assert set(counts.values()) == {1}


def test_a_function_is_judged_by_the_condition_of_its_rule():
    for rule, met in REGISTERED:
        assert {condition(name_of(function)) for function in rule.functions} == {met}


class Slope(Rule[None]):
    """y = max(0, x) + a·min(0, x) with one a: ∂a = Σ g·min(0, x)."""

    functions = (torch.prelu,)

    def bind(self, input: Tensor, weight: Tensor) -> Bound[None]:
        return Bound(input, weight, None, None)

    def leading(self, input: Tensor, options: None) -> int:
        return 1

    def per_record(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        rows = (grad * call.input.clamp(max=0)).flatten(1)
        return {call.weight: layout.by_record(rows, rows.shape[1]).sum((1, 2))[:, None]}


def test_a_new_rule_is_a_class_and_a_registration(monkeypatch):
    def model() -> nn.Module:
        torch.manual_seed(0)
        return head(nn.Sequential(nn.Linear(4, 6), nn.PReLU()), NUMBERS)

    monkeypatch.setitem(WITH_WEIGHTS, functional.prelu, lambda *args: NotImplemented)
    used = []
    monkeypatch.setattr(Slope, "per_record", lambda *args, own=Slope.per_record: used.append(1) or own(*args))
    monkeypatch.setitem(RULES, functional.prelu, Slope())
    assert {layer.rule for layer in check_model(model(), NUMBERS)} == {"fast"}
    assert_parity(model(), NUMBERS, "rules", by_autograd)
    assert used
