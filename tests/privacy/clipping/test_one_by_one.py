"""Models that no rule covers go record by record, to the gradients that torch itself gives."""

import logging
import weakref

import pytest
import torch
from torch import Tensor, nn

from fedfdp.privacy.clipping import check_model, clipped_sum
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.one_by_one import alone
from per_record import CLASSES, assert_parity, by_autograd, close, cross_entropy


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(8, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.attention(self.first(x), x, x)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.body, self.out = kind(4, 6, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x)[0][:, -1])


class Scale(nn.Module):
    """A parameter of its own, used by no known function."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.rand(4)), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x / self.scale.exp())


class Positions(nn.Module):
    """Looks up the same table rows for every batch: the rows have no batch dimension at all."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.out = nn.Embedding(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x[..., None] + self.place(torch.arange(4))).tanh().mean(1))


class _Square(torch.autograd.Function):
    """Its gradient is three times the derivative."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return 3 * g * w * w, (g * x * 6 * w).sum(0)


class Hidden(Scale):
    """A parameter that only an autograd function sees."""

    def forward(self, x: Tensor) -> Tensor:
        return self.out(_Square.apply(x, self.scale))


class MixesRecords(nn.Module):
    """Takes half the batch's mean away, unknown to any list of layers; alone, a record is its own mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.out(h - 0.5 * h.mean(0))


class Assigned(Scale):
    """A parameter that is written into a part of the data."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.clone()
        h[:, 1:3] = self.scale[:2]
        return self.out(h * x)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (CrossAttention, (5, 3, 8)),
        (lambda: Recurrent(nn.LSTM), (5, 3, 4)),
        (lambda: Recurrent(nn.GRU), (5, 3, 4)),
        (Scale, (5, 4)),
        (Positions, (5, 4)),
    ],
)
def test_what_has_a_rule_needs_no_fallback(make, shape):
    torch.manual_seed(0)
    assert_parity(make(), torch.randn(*shape), "rules", by_autograd)


@pytest.mark.parametrize(("make", "shape", "how"), [(Assigned, (5, 4), "vmap"), (Hidden, (5, 4), "loop")])
def test_other_models_go_through_the_fallback_and_say_so_once(make, shape, how, caplog):
    torch.manual_seed(0)
    model, x = make(), torch.randn(*shape)
    with caplog.at_level(logging.WARNING, logger="fedfdp"):
        assert_parity(model, x, how, by_autograd)
        clipped_sum(model, cross_entropy, x[:3], torch.zeros(3, dtype=torch.long), clip=1.0)
    assert len(caplog.records) == 1


def test_a_model_that_mixes_records_is_run_record_by_record():
    model, x, y = MixesRecords(), torch.randn(6, 4), torch.randint(0, CLASSES, (6,))
    right = by_autograd(model, x, y)
    found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
    for name, rows in right.items():
        close(found.grads[name], rows.sum(0))
    assert {report.rule for report in check_model(model, x)} == {"fallback"}


def test_a_loss_that_mixes_records_is_run_record_by_record():
    model, x, y = nn.Linear(4, CLASSES), torch.randn(6, 4), torch.randint(0, CLASSES, (6,))

    def centred(output: Tensor, target: Tensor) -> Tensor:
        losses = cross_entropy(output, target)
        return losses * (1 + losses.mean())

    found = clipped_sum(model, centred, x, y, clip=1e6)
    total = sum(centred(model(x[i : i + 1]), y[i : i + 1]).sum() for i in range(6))
    close(found.grads["weight"], torch.autograd.grad(total, model.weight)[0])


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_reparametrised_weights(wrap):
    x = torch.randn(5, 4)
    model = nn.Sequential(wrap(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, CLASSES)).eval()
    assert_parity(model, x, "rules", by_autograd)


def test_one_records_gradients_are_gone_before_the_next_ones_come():
    """Those of a few records would take several times as much memory as the model."""
    model, seen = nn.Linear(4, CLASSES), []

    def take(record: int, grads: dict[str, Tensor]) -> None:
        assert not any(earlier() is not None for earlier in seen)
        assert len(seen) == 2 * record
        seen.extend(weakref.ref(grad) for grad in grads.values())

    job = Job(model, cross_entropy, dict(model.named_parameters()))
    x, y = torch.randn(3, 4), torch.arange(3) % CLASSES
    close(alone(job, x, y, take), cross_entropy(model(x), y).detach())
    assert len(seen) == 6
