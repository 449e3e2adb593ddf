"""Parameters of unusual shape or precision, and memory that was never written: the sums are those of plain autograd."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.privacy.clipping import check_model, clipped_sum


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


class Temperature(nn.Module):
    """Beside a layer, one parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.warmth = nn.Linear(4, 3), nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.warmth


class Nothing(nn.Module):
    """Parameters without a number in them, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.unused = nn.Linear(4, 3), nn.Linear(5, 5)
        self.none, self.no_rows = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.zeros(5, 0))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.none.sum() + self.no_rows.sum()


class SingleThenDouble(nn.Module):
    """Layers of every kind in single precision; the last one, and the loss, in double."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.wide = nn.Embedding(9, 300), nn.Linear(300, 400)
        self.conv, self.row = nn.Conv1d(1, 2, 2), nn.Linear(4, 4)
        self.out = nn.Linear(406, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        words = torch.tanh(self.wide(self.table((x.abs() * 3).long().clamp(0, 8)))).mean(1)
        both = torch.cat([words, self.conv(torch.tanh(self.row(x))[:, None]).flatten(1)], 1)
        return self.out(both.double())


class DoubleThenSingle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row, self.out = nn.Linear(4, 5).double(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.row(x.double())).float())


def by_autograd(model: nn.Module, x: Tensor, y: Tensor, clip: float) -> Tensor:
    """Σ_b g_b·min(1, clip/‖g_b‖) in double precision, one record after the other."""
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for i in range(len(x)):
        loss = cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum()
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        given = zip(grads, model.parameters(), strict=True)
        row = torch.cat([(torch.zeros_like(p) if g is None else g).flatten().double() for g, p in given])
        total += row * min(1.0, clip / float(row.norm()))
    return total


@pytest.fixture
def spoilt_memory(monkeypatch):
    """What is set aside without being written holds NaN: nothing of it may be part of a sum."""
    plain = Tensor.new_empty

    def spoilt(self, *args, **kwargs):
        memory = plain(self, *args, **kwargs)
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    monkeypatch.setattr(Tensor, "new_empty", spoilt)


@pytest.mark.usefixtures("spoilt_memory")
@pytest.mark.parametrize("kind", [Temperature, Nothing, SingleThenDouble, DoubleThenSingle])
@pytest.mark.parametrize("sizes", [[7], [0, 3, 4], [1, 0, 0, 2, 0, 4, 0], [0, 0, 0, 0, 7], [7, 0, 0, 0, 0, 0], [0] * 6])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_every_group_has_the_sum_of_its_own_records(kind, sizes, chunk):
    torch.manual_seed(0)
    model, x, y = kind(), torch.randn(sum(sizes), 4), torch.arange(sum(sizes)) % 3
    found = clipped_sum(model, cross_entropy, x, y, clip=0.7, sizes=sizes, chunk=chunk)
    start = 0
    for k, count in enumerate(sizes):
        right = by_autograd(model, x[start : start + count], y[start : start + count], 0.7)
        torch.testing.assert_close(found.flat[k].double(), right, rtol=1e-4, atol=1e-6)
        start += count


def test_a_model_that_answers_with_one_number_a_record_can_be_looked_over():
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    assert [(layer.name, layer.rule) for layer in check_model(model, torch.randn(3, 4))] == [("0", "fast")]
