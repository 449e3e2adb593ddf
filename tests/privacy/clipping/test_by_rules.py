"""Whole models by the layer rules against gradients taken from torch itself, record by record."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.plan import _plans
from per_record import CLASSES, assert_parity, by_autograd, by_torch_func, close, cross_entropy, head


def test_half_the_parameters_frozen():
    x = torch.randn(6, 2, 6, 6)
    model = head(nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 4, 3)), x)
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 2 == 0)
    assert_parity(model, x, "rules")
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 2 == 1)
    assert_parity(model, x, "rules")


class Shared(nn.Module):
    """One layer called twice, its weight used a third time by hand, and an embedding tied to the output."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.twice, self.out = nn.Embedding(CLASSES, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.twice(torch.tanh(self.twice(self.table(x))))
        return self.out((h + functional.linear(h, self.twice.weight)).mean(1))


def test_shared_weights_count_with_their_cross_terms():
    model = Shared()
    assert [name for name, _ in model.named_parameters()] == ["table.weight", "twice.weight", "twice.bias"]
    assert_parity(model, torch.randint(0, CLASSES, (6, 4)), "rules")


class Reader(nn.Module):
    """Tokens through an encoder; `layout` says where the encoder keeps the batch."""

    def __init__(self, layout: str, **options: object) -> None:
        super().__init__()
        self.layout, self.table = layout, nn.Embedding(20, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=layout != "sequence", **options)
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        if self.layout == "sequence":
            return self.out(self.norm(self.encoder(h.transpose(0, 1))).mean(0))
        if self.layout == "folded":
            return self.out(self.norm(self.encoder(h).reshape(-1, 16)).reshape(*x.shape, 16).mean(1))
        return self.out(self.norm(self.encoder(h)).mean(1))


@pytest.mark.parametrize("layout", ["batch", "sequence", "folded"])
@pytest.mark.parametrize("tokens", [6, 5])  # 6 tokens for 6 records: shapes alone cannot tell the two apart
def test_transformer_encoder_in_any_layout(layout, tokens):
    x = torch.randint(0, 20, (6, tokens), generator=torch.Generator().manual_seed(3))
    assert_parity(Reader(layout), x, "rules", by_autograd)


def test_records_that_are_all_alike_do_not_hide_where_a_model_keeps_them():
    torch.manual_seed(0)
    model, same = Reader("sequence"), torch.full((3, 4), 7)
    clipped_sum(model, cross_entropy, same, torch.tensor([0, 1, 2]), clip=1.0)
    assert [plan.how for plan in _plans[model].values()] == ["rules"]
    assert_parity(model, torch.randint(0, 20, (6, 4)), "rules", by_autograd)


class Ordinary(nn.Module):
    """What models write by hand: a root mean square, a branch left out by chance, a pick by position, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.one, self.two = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        branch = torch.tanh(self.one(h))
        if self.training:
            kept = torch.empty(len(x), 1, 1).bernoulli_(1.0)  # always 1, so that autograd has one answer
            branch = branch * kept.div_(1.0)
        h = h + branch
        scores = (h @ h.mT).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), float("-inf"))
        h = scores.softmax(-1) @ h
        last = (x != 0).sum(1).clamp_min(1) - 1
        return self.two(h[torch.arange(len(x)), last])


def test_what_models_write_by_hand_is_fast():
    x = torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(3))
    assert_parity(Ordinary(), x, "rules", by_autograd)


def test_transformer_encoder_in_evaluation_mode():
    x = torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(3))
    assert_parity(Reader("batch").eval(), x, "rules", by_autograd)


class Viewer(nn.Module):
    """Reads its images with `view`, which takes the usual order of numbers for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(2, 4, 3), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu_(self.conv(x)).view(len(x), -1))


def test_a_model_that_views_its_images():
    assert_parity(Viewer(), torch.randn(5, 2, 6, 6), "rules")


class Frames(nn.Module):
    """Images folded with time into one leading dimension, time first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x.transpose(0, 1).flatten(0, 1))).mean((2, 3))
        return self.out(h.view(x.shape[1], x.shape[0], -1).mean(0))


def test_images_folded_with_time():
    assert_parity(Frames(), torch.randn(5, 3, 2, 6, 6), "rules", by_autograd)


def test_a_model_changed_after_its_first_use_is_examined_again():
    x, y = torch.randn(6, 4), torch.randint(0, CLASSES, (6,))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, CLASSES))
    clipped_sum(model, cross_entropy, x, y, clip=1.0)
    model.insert(1, nn.Sequential(nn.Tanh(), nn.Linear(4, 4)))
    for _ in range(2):
        found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
        for name, rows in by_torch_func(model, x, y).items():
            close(found.grads[name], rows.sum(0))


def test_dropout_is_drawn_record_by_record_from_the_global_generator():
    x, y = torch.randn(8, 6), torch.randint(0, CLASSES, (8,))
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES))
    torch.manual_seed(5)
    losses = cross_entropy(model(x), y)
    clipped_sum(model, cross_entropy, x, y, clip=1.0)  # the first use examines the model
    torch.manual_seed(5)
    found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
    torch.testing.assert_close(found.losses, losses.detach())
    close(found.grads["0.weight"], torch.autograd.grad(losses.sum(), model[0].weight)[0])


class Noisy(nn.Module):
    """Draws its own noise in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.out(h + torch.randn_like(h))


def test_a_model_that_draws_noise_keeps_its_noise_and_the_rules():
    model, x, y = Noisy(), torch.randn(6, 4), torch.randint(0, CLASSES, (6,))
    clipped_sum(model, cross_entropy, x, y, clip=1.0)
    assert {plan.how for plan in _plans[model].values()} == {"rules"}
    torch.manual_seed(1)
    found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
    torch.manual_seed(1)
    close(found.grads["first.weight"], torch.autograd.grad(cross_entropy(model(x), y).sum(), model.first.weight)[0])


def test_against_opacus_on_the_papers_cnn():
    opacus = pytest.importorskip("opacus")
    torch.manual_seed(0)
    x, y = torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )
    assert sum(p.numel() for p in model.parameters()) == 582_026
    found = clipped_sum(model, cross_entropy, x, y, clip=0.1)
    hooked = opacus.GradSampleModule(model, loss_reduction="sum")
    cross_entropy(hooked(x), y).sum().backward()
    rows = {name.removeprefix("_module."): p.grad_sample.detach() for name, p in hooked.named_parameters()}
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
    torch.testing.assert_close(found.norms, norms, rtol=1e-5, atol=0)
    for name, g in rows.items():
        close(found.grads[name], torch.einsum("b,b...->...", (0.1 / norms).clamp(max=1), g))
