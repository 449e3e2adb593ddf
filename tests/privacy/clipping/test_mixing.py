"""Models that let one record reach another: through the batch, or through what they remember. The bound holds."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping import clipped_sum, record_losses

CLIP = 0.3


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 2)


class Centred(Model):
    """Each record relative to the batch's mean."""

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x - x.mean(0))


class OneColumn(Model):
    """The same in one column only."""

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.cat([x[:, :1] - x[:, :1].mean(0), x[:, 1:]], 1))


class Words(nn.Module):
    """Embedded words relative to the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.linear = nn.Embedding(9, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        words = self.table(x).mean(1)
        return self.linear(words - words.detach().mean(0))


class InBuffer(Model):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.linear(x - self.mean)


class InNewBuffer(InBuffer):
    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.linear(x - self.mean)


class AfterUse(InBuffer):
    """Uses what the passes before have left."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x - self.mean)
        self.mean.add_(x.mean(0))
        return y


class InTensor(Model):
    """The same in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self._mean = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        self._mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.linear(x - self._mean)


class InNumber(Model):
    """The same in a plain number, which is there from the first pass on."""

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * getattr(self, "mean", 0.0) + 0.1 * float(x.detach().mean())
        return self.linear(x - self.mean)


REMEMBERING = [InBuffer, InNewBuffer, AfterUse, InTensor, InNumber]


def records(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(count) % 2


def without_noise(model: nn.Module, x: Tensor, y: Tensor, *, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    total = clipped_sum(model, cross_entropy, x, y, clip=CLIP, chunk=chunk)
    return total.flat, record_losses(model, cross_entropy, x, y)


ALIKE = {
    "equal": lambda x: x[:1].expand(8, 4),
    "zero": lambda x: torch.zeros(8, 4),
    "equal in one column": lambda x: torch.cat([torch.zeros(8, 1), x[:8, 1:]], 1),
    "first of them equal": lambda x: torch.cat([x[:1].expand(3, 4), x[:5]]),
}


@pytest.mark.parametrize("kind", [Centred, OneColumn])
@pytest.mark.parametrize("alike", ALIKE)
def test_records_that_are_alike_do_not_hide_that_a_model_mixes_them(kind, alike):
    """What the first batch holds must not decide that later ones may mix."""
    model, (x, y) = kind(), records(12)
    clipped_sum(model, cross_entropy, ALIKE[alike](x).contiguous(), y[:8], clip=CLIP)
    _, losses = without_noise(model, x, y)
    for own in (1e3, -1e5, 0.0):
        changed = x.clone()
        changed[0] = own
        total, others = without_noise(model, changed, y)
        rest, _ = without_noise(model, x[1:], y[1:])
        assert float((total - rest).norm()) <= CLIP * (1 + 1e-4)
        assert torch.equal(others[1:], losses[1:])


def test_words_that_are_alike_hide_nothing_either():
    model, y = Words(), torch.arange(8) % 2
    clipped_sum(model, cross_entropy, torch.tensor([[1, 2, 3]] * 8), y, clip=CLIP)
    x = torch.randint(0, 9, (8, 3), generator=torch.Generator().manual_seed(0))
    total = clipped_sum(model, cross_entropy, x, y, clip=CLIP).flat
    rest = clipped_sum(model, cross_entropy, x[1:], y[1:], clip=CLIP).flat
    assert float((total - rest).norm()) <= CLIP * (1 + 1e-4)


@pytest.mark.parametrize("kind", REMEMBERING)
@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_nothing_is_remembered_from_one_record_to_the_next(kind, chunk):
    """Not from the first look at a model either: it sees records too."""
    x, y = records(12)
    rest, losses = without_noise(kind(), x[1:], y[1:], chunk=chunk)
    for own in (1e3, -1e5):
        changed = x.clone()
        changed[0] = own
        total, all_losses = without_noise(kind(), changed, y, chunk=chunk)
        assert float((total - rest).norm()) <= CLIP * (1 + 1e-4)
        torch.testing.assert_close(all_losses[1:], losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", REMEMBERING)
def test_nothing_is_remembered_from_one_batch_to_the_next(kind):
    model, (x, y) = kind(), records(12)
    before = {name: value for name, value in vars(model).items() if not name.startswith("__")}
    first = without_noise(model, x, y)
    without_noise(model, x + 1e3, y)
    again = without_noise(model, x, y)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert vars(model).keys() == before.keys()


class Initialised(Model):
    """Sets its own weights by the first records it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.shift.any():
            self.shift.data.copy_(x.mean(0))
        return self.linear(x - self.shift)


def test_a_model_that_writes_records_into_its_weights_is_refused():
    model, (x, y) = Initialised(), records(12)
    with pytest.raises(SettingError, match=r"model\.shift = .*forward pass changes it"):
        clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    assert not model.shift.any()
