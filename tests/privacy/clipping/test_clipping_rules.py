"""Every layer rule and every fallback against gradients taken from torch itself, record by record."""

import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedfdp.privacy.clipping import check_model, clipped_sum
from fedfdp.privacy.clipping.plan import _plans

CLASSES = 5


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def by_torch_func(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Per-sample gradients by vmap(grad), the definition the rules are held to."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(w: dict[str, Tensor], xi: Tensor, yi: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, w, (xi[None],)), yi[None])[0]

    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)


def by_autograd(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Per-sample gradients by one backward pass a record, for models that torch.func cannot run."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for i in range(len(x)):
        loss = cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum()
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, p), g in zip(named.items(), grads, strict=True):
            rows[name].append(torch.zeros_like(p) if g is None else g)
    return {name: torch.stack(found).detach() for name, found in rows.items()}


def close(found: Tensor, right: Tensor, scale: Tensor | float = 0.0) -> None:
    size = max(float(right.norm()), float(scale))
    assert float((found - right).norm()) <= 1e-5 * size + 1e-12


def assert_parity(model: nn.Module, x: Tensor, how: str, reference=by_torch_func, seed: int = 0) -> None:
    y = torch.randint(0, CLASSES, (len(x),), generator=torch.Generator().manual_seed(seed))
    right = reference(model, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in right.values()]).norm(dim=0)
    clip = float(norms.median())  # about half of the records are clipped
    found = clipped_sum(model, cross_entropy, x, y, clip=clip)
    assert {plan.how for plan in _plans[model].values()} == {how}
    assert list(found.grads) == list(right)
    torch.testing.assert_close(found.norms, norms, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found.losses, cross_entropy(model(x), y).detach(), rtol=1e-5, atol=1e-6)
    c = (clip / norms).clamp(max=1)
    torch.testing.assert_close(found.coefficients, c, rtol=1e-5, atol=1e-8)
    whole = torch.stack([torch.einsum("b,b...->...", c, g).norm() for g in right.values()]).norm()
    for name, g in right.items():
        # A gradient that is zero but for rounding (a bias before a softmax over keys) is measured against the whole.
        close(found.grads[name], torch.einsum("b,b...->...", c, g), scale=1e-2 * whole)


def head(body: nn.Module, x: Tensor) -> nn.Sequential:
    return nn.Sequential(body, nn.Flatten(), nn.Linear(body(x[:1]).flatten(1).shape[1], CLASSES))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_linear_with_any_leading_dimensions(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=2))
    bias = data.draw(st.booleans())
    x = torch.randn(6, *shape, 7)
    assert_parity(head(nn.Sequential(nn.Linear(7, 9, bias=bias), nn.Tanh(), nn.Linear(9, 4, bias=bias)), x), x, "rules")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_convolutions_of_any_shape(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    dims, groups = data.draw(st.sampled_from([1, 2, 2, 3])), data.draw(st.sampled_from([1, 2, 4]))
    small = [data.draw(st.integers(1, 3)) for _ in range(3 * dims)]
    kernel, stride, dilation = small[:dims], small[dims : 2 * dims], small[2 * dims :]
    padding = data.draw(st.sampled_from(["valid", "same", 0, 1, 2]))
    if padding == "same":
        stride = [1] * dims
    mode = data.draw(st.sampled_from(["zeros", "circular", "replicate"] + ["reflect"] * (dims < 3)))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        4, 8, tuple(kernel), tuple(stride), padding, tuple(dilation), groups, data.draw(st.booleans()), mode
    )
    x = torch.randn(4, 4, *[data.draw(st.integers(7, 9)) for _ in range(dims)])
    assert_parity(head(layer, x), x, "rules", by_autograd)


def test_strided_convolution_stack_with_inplace_activations():
    x = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    body = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1)),
    )
    assert_parity(head(body, x), x, "rules")


@pytest.mark.parametrize("channels_last", [False, True])
def test_channels_last_images(channels_last):
    x = torch.randn(5, 3, 8, 8)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    assert_parity(head(nn.Conv2d(3, 4, 3, padding=1), x), x, "rules")


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 4, 4)])
def test_group_norm(shape, affine):
    x = torch.randn(5, *shape)
    assert_parity(head(nn.Sequential(nn.GroupNorm(3, 6, affine=affine), nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("normalized", [(6,), (4, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(normalized, bias):
    x = torch.randn(5, 4, 6)
    assert_parity(head(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(normalized, bias=bias), nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("padding", [None, 0, -1])
def test_embedding_with_repeated_tokens(padding):
    x = torch.randint(0, 4, (6, 9), generator=torch.Generator().manual_seed(0))
    assert_parity(head(nn.Sequential(nn.Embedding(4, 3, padding_idx=padding), nn.Tanh()), x), x, "rules")


def test_wide_linear_over_a_sequence_without_forming_the_gradient():
    x = torch.randn(6, 3, 200)
    assert 200 * 400 > 2**16
    assert_parity(head(nn.Sequential(nn.Linear(200, 400), nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("dims", [1, 2])
def test_wide_convolution_without_forming_the_gradient(dims, monkeypatch):
    monkeypatch.setattr("fedfdp.privacy.clipping.layers.patches.COPY", 2**12)  # several copies for six records
    x = torch.randn(6, 64, *[5] * dims)
    layer = (nn.Conv1d, nn.Conv2d)[dims - 1](64, 512 // dims**2, 3, padding=1, stride=2)
    assert layer.weight.numel() > 2**16
    assert_parity(head(nn.Sequential(layer, nn.Tanh()), x), x, "rules")


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


class Broadcast(nn.Module):
    """Parameters of several shapes added to and multiplied with the data, on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.gain = nn.Parameter(torch.randn(1, 3, 4)), nn.Parameter(torch.rand(4))
        self.offset, self.column = nn.Parameter(torch.randn(1)), nn.Parameter(torch.rand(3, 1))
        self.out = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.gain * (x + self.places) + self.offset)
        return self.out((self.column + torch.add(h, self.gain)).mul(self.column).flatten(1))


def test_parameters_added_to_and_multiplied_with_data():
    assert_parity(Broadcast(), torch.randn(5, 3, 4), "rules")


class Positions(nn.Module):
    """Looks up the same table rows for every batch: the rows have no batch dimension at all."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.out = nn.Embedding(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x[..., None] + self.place(torch.arange(4))).tanh().mean(1))


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * w, (g * x * 2 * w).sum(0)


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


@pytest.mark.parametrize(
    ("make", "shape", "how"),
    [
        (CrossAttention, (5, 3, 8), "vmap"),
        (lambda: Recurrent(nn.LSTM), (5, 3, 4), "vmap"),
        (lambda: Recurrent(nn.GRU), (5, 3, 4), "loop"),
        (Scale, (5, 4), "vmap"),
        (Positions, (5, 4), "vmap"),
        (Hidden, (5, 4), "loop"),
    ],
)
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


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_reparametrised_weights(wrap):
    x = torch.randn(5, 4)
    model = nn.Sequential(wrap(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, CLASSES)).eval()
    assert_parity(model, x, "vmap", by_autograd)


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
