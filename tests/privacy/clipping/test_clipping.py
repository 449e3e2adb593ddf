"""The contract of clipped_sum: the bound for every input, groups, chunks, and a model left as it was."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping import check_model, clipped_sum

ANY = st.floats(allow_nan=True, allow_infinity=True, width=32)


def squared(output: Tensor, y: Tensor) -> Tensor:
    return 0.5 * (output[:, 0] - y).square()


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def slope(w: float = 0.0) -> nn.Linear:
    """y = w·x: the gradient of ½(wx − y)² is (wx − y)·x, so at w = 0 a record (x, y) has gradient −x·y."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, w)
    return model


def small_cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 4, 3, stride=2), nn.Flatten()),
        *(nn.Linear(16, 6), nn.ReLU(), nn.Dropout(0.0), nn.Linear(6, 3)),
    )


def images(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 7, 7, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def size(grads: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))


def test_by_hand_with_the_default_coefficient():
    # Gradients −1·2 = −2 and −3·(−1) = 3; clip 1 leaves −1 and 1 of them, clip 2.5 leaves −2 and 2.5.
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, -1.0])
    one = clipped_sum(slope(), squared, x, y, clip=1.0)
    torch.testing.assert_close(one.grads["weight"], torch.tensor([[0.0]]), rtol=0, atol=1e-7)
    assert one.losses.tolist() == [2.0, 0.5]
    assert one.norms.tolist() == [2.0, 3.0]
    torch.testing.assert_close(one.coefficients, torch.tensor([1 / 2, 1 / 3]))
    assert (one.skipped, one.sensitivity) == (0, 1.0)
    torch.testing.assert_close(clipped_sum(slope(), squared, x, y, clip=2.5).grads["weight"], torch.tensor([[0.5]]))


def test_by_hand_with_a_coefficient_of_loss_and_norm():
    # Losses 2 and 0.5, norms 2 and 3: wanted 2 − 1 = 1 and 0.5 − 1 = −0.5, limits 1.25 and 0.83: −2·1 + 3·(−0.5)
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, -1.0])
    found = clipped_sum(slope(), squared, x, y, clip=2.5, coefficient=lambda loss, norm: loss - 1)
    torch.testing.assert_close(found.grads["weight"], torch.tensor([[-3.5]]))
    # Ten times as much is wanted: 10 and −5 are cut to 1.25 and −0.8333, each contribution has size 2.5: −2.5 − 2.5
    found = clipped_sum(slope(), squared, x, y, clip=2.5, coefficient=lambda loss, norm: 10 * (loss - 1))
    torch.testing.assert_close(found.grads["weight"], torch.tensor([[-5.0]]))
    torch.testing.assert_close(found.coefficients, torch.tensor([1.25, -2.5 / 3]))


def test_a_bound_for_each_record():
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, -1.0])
    found = clipped_sum(slope(), squared, x, y, clip=torch.tensor([0.5, 3.0]))
    torch.testing.assert_close(found.grads["weight"], torch.tensor([[2.5]]))
    assert found.sensitivity == 3.0


COEFFICIENTS = {
    "default": lambda a: None,
    "constant": lambda a: lambda loss, norm: torch.full_like(loss, a),
    "loss": lambda a: lambda loss, norm: a * loss,
    "inverse norm": lambda a: lambda loss, norm: a / norm,
    "logarithm": lambda a: lambda loss, norm: torch.log(loss - a),
    "sign": lambda a: lambda loss, norm: torch.sign(loss - 1) * math.inf,
}


@settings(max_examples=60, deadline=None)
@given(ANY, ANY, ANY, st.floats(1e-6, 1e6), st.sampled_from(sorted(COEFFICIENTS)), ANY)
@example(1e-20, 1e-20, 0.0, 1.0, "constant", 3e38)  # the norm underflows, the coefficient is huge
@example(1e-30, 1e10, 0.0, 1.0, "constant", 3e38)  # one factor underflows, the other does not
@example(1e19, 1e19, 0.0, 1e-6, "default", 0.0)  # the norm is as large as single precision allows
@example(1e30, 1e30, 0.0, 1.0, "default", 0.0)
@example(3e38, 1.0, 0.0, 1e-6, "default", 0.0)  # the coefficient itself underflows
def test_one_record_never_counts_for_more_than_the_bound(x, y, w, clip, kind, a):
    found = clipped_sum(
        slope(w), squared, torch.tensor([[x]]), torch.tensor([y]), clip=clip, coefficient=COEFFICIENTS[kind](a)
    )
    contribution = float(found.grads["weight"])
    assert abs(contribution) <= clip * (1 + 1e-5)  # false for NaN
    assert found.skipped in (0, 1)
    if found.skipped:
        assert contribution == 0.0
        assert found.coefficients.tolist() == [0.0]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 5),
    st.sampled_from([0.0, 1e-30, 1e-10, 1.0, 1e4, 1e10, 1e30, 3e38, math.nan, math.inf, -math.inf]),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.sampled_from(sorted(COEFFICIENTS)),
    st.sampled_from([-1e30, -1.0, 0.0, 0.7, 1e30, math.nan]),
)
def test_with_and_without_a_record_differ_by_the_bound_at_most(who, scale, clip, kind, a):
    model, (x, y) = small_cnn(), images(6)
    x[who] *= scale
    others = [i for i in range(6) if i != who]
    options = {"clip": clip, "coefficient": COEFFICIENTS[kind](a)}
    all_six = clipped_sum(model, cross_entropy, x, y, **options)
    without = clipped_sum(model, cross_entropy, x[others], y[others], **options)
    difference = {name: all_six.grads[name] - without.grads[name] for name in all_six.grads}
    rounding = 1e-6 * 5 * clip  # the five others are summed in another order
    assert size(difference) <= clip * (1 + 1e-5) + rounding


class Cancels(nn.Module):
    """A sequence layer whose rows' gradients cancel but for rounding: huge factors, tiny sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.wide(x)
        return (h * torch.tensor([1.0, -1.0])[:, None]).sum((1, 2))[:, None]


@pytest.mark.parametrize("width", [4, 256])  # stored, and as a product of factors
@pytest.mark.parametrize("difference", [0.0, 1e-6, 1e-3])
def test_the_bound_holds_where_a_records_rows_cancel(width, difference):
    torch.manual_seed(0)
    row = 100 * torch.randn(2, 1, width)
    x = torch.cat([row, row + difference * torch.randn(2, 1, width)], 1)
    found = clipped_sum(
        Cancels(width),
        squared,
        x,
        torch.full((2,), 1e3),
        clip=1.0,
        coefficient=lambda loss, norm: 1 / norm,
        sizes=[1, 1],
    )
    for k in range(2):
        assert size({name: g[k] for name, g in found.grads.items()}) <= 1 + 1e-5


def test_a_poisoned_record_leaves_the_others_untouched():
    model, (x, y) = small_cnn(), images(6)
    others = [0, 1, 3, 4, 5]
    right = clipped_sum(model, cross_entropy, x[others], y[others], clip=0.3)
    for poison in (math.nan, math.inf, -math.inf):
        x[2] = poison
        found = clipped_sum(model, cross_entropy, x, y, clip=0.3)
        assert found.skipped == 1
        assert found.coefficients[2] == 0
        for name, g in right.grads.items():
            torch.testing.assert_close(found.grads[name], g, rtol=1e-5, atol=1e-7)


def test_the_coefficient_cannot_read_other_records():
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, -1.0])
    found = clipped_sum(slope(), squared, x, y, clip=9.0, coefficient=lambda loss, norm: loss / loss.mean())
    assert found.coefficients.tolist() == [1.0, 1.0]
    with pytest.raises(SettingError, match="coefficient"):
        clipped_sum(slope(), squared, x, y, clip=9.0, coefficient=lambda loss, norm: loss[0])
    with pytest.raises(SettingError, match=r"elementwise.*torch.where"):
        clipped_sum(slope(), squared, x, y, clip=9.0, coefficient=lambda loss, norm: min(1.0, 9.0 / norm))


@pytest.mark.parametrize("sizes", [[3, 2, 6], [0, 11, 0], [1] * 11, [11], [0, 4, 0, 7, 0]])
@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_groups_are_summed_apart(sizes, chunk):
    model, (x, y) = small_cnn(), images(11)
    found = clipped_sum(model, cross_entropy, x, y, clip=0.3, sizes=sizes, chunk=chunk)
    start = 0
    for k, count in enumerate(sizes):
        part = slice(start, start + count)
        alone = clipped_sum(model, cross_entropy, x[part], y[part], clip=0.3)
        for name, g in alone.grads.items():
            assert found.grads[name].shape == (len(sizes), *g.shape)
            torch.testing.assert_close(found.grads[name][k], g, rtol=1e-5, atol=1e-7)
        start += count


def every_kind_of_sum() -> nn.Module:
    """Convolution, normalisation and linear layers, stored and as factors, and an embedding."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(2, 4, 3, padding=1)
            self.table, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
            self.row, self.wide = nn.Linear(4, 280), nn.Linear(280, 280)
            self.out = nn.Linear(280, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.conv(x)).mT + self.norm(self.table((x[:, 0] * 4).abs().long().clamp(0, 8)))
            return self.out(torch.tanh(self.wide(torch.tanh(self.row(h)))).mean(1))

    torch.manual_seed(0)
    return Mixed()


@pytest.mark.parametrize("sizes", [[2, 9, 0, 1, 4, 3, 0, 0, 5, 6], [1, 1, 25, 1, 1, 1], [3] * 10, [0, 0, 14, 16]])
@pytest.mark.parametrize("chunk", [None, 7])
def test_groups_of_every_kind_of_layer(sizes, chunk):
    generator = torch.Generator().manual_seed(0)
    model, x = every_kind_of_sum(), torch.randn(30, 2, 6, generator=generator)
    y = torch.randint(0, 3, (30,), generator=generator)
    found = clipped_sum(model, cross_entropy, x, y, clip=0.3, sizes=sizes, chunk=chunk)
    start = 0
    for k, count in enumerate(sizes):
        alone = clipped_sum(model, cross_entropy, x[start : start + count], y[start : start + count], clip=0.3)
        for name, g in alone.grads.items():
            torch.testing.assert_close(found.grads[name][k], g, rtol=1e-4, atol=1e-6)
        start += count


@pytest.mark.parametrize("chunk", [1, 3, 7, 11, 100])
def test_chunks_do_not_change_the_result(chunk):
    model, (x, y) = small_cnn(), images(11)
    whole = clipped_sum(model, cross_entropy, x, y, clip=0.3)
    found = clipped_sum(model, cross_entropy, x, y, clip=0.3, chunk=chunk)
    torch.testing.assert_close(found.norms, whole.norms, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.losses, whole.losses)
    for name, g in whole.grads.items():
        torch.testing.assert_close(found.grads[name], g, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sizes", [None, [0, 0]])
def test_an_empty_batch_is_a_batch(sizes):
    model, (x, y) = small_cnn(), images(0)
    found = clipped_sum(model, cross_entropy, x, y, clip=0.3, sizes=sizes)
    for name, parameter in model.named_parameters():
        assert found.grads[name].shape == ((len(sizes),) if sizes else ()) + parameter.shape
        assert not found.grads[name].any()
    assert found.losses.shape == found.norms.shape == found.coefficients.shape == (0,)
    assert (found.skipped, found.sensitivity) == (0, 0.3)
    assert clipped_sum(model, cross_entropy, x, y, clip=torch.ones(0)).sensitivity == 0.0


class Restless(nn.Module):
    """Changes a buffer and replaces another in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().mean(0)
        self.last = x.detach()[0]
        return self.out(x)


def test_the_model_is_left_as_it_was():
    model, (x, y) = small_cnn(), images(5)
    model[1].eval()
    model[3].bias.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {name: (p, p.clone(), p._version, p.requires_grad) for name, p in model.named_parameters()}
    modes = [m.training for m in model.modules()]
    x.requires_grad_()
    clipped_sum(model, cross_entropy, x, y, clip=0.3)
    with pytest.raises(ZeroDivisionError):
        clipped_sum(model, lambda output, y: 1 / 0, x, y, clip=0.3)
    for name, parameter in model.named_parameters():
        same, values, version, trainable = before[name]
        assert parameter is same
        assert parameter._version == version
        assert parameter.requires_grad == trainable
        assert torch.equal(parameter, values)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "0.weight")
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert x.grad is None


def test_buffers_are_left_as_they_were():
    model, x = Restless(), torch.randn(4, 3)
    seen, last = model.seen, model.last
    clipped_sum(model, cross_entropy, x, torch.tensor([0, 1, 2, 0]), clip=0.3)
    assert model.seen is seen
    assert model.last is last
    assert not seen.any()
    assert not last.any()


def test_works_without_gradients_enabled_and_in_double_precision():
    model, (x, y) = small_cnn(), images(5)
    single = clipped_sum(model, cross_entropy, x, y, clip=0.3)
    with torch.no_grad():
        double = clipped_sum(model.double(), cross_entropy, x.double(), y, clip=0.3)
    assert double.norms.dtype == torch.float64
    torch.testing.assert_close(single.norms.double(), double.norms, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("layer", "fix"),
    [
        (nn.BatchNorm1d(4), r"nn\.GroupNorm\(4, 4\)"),
        (nn.SyncBatchNorm(6), r"nn\.GroupNorm\(2, 6\)"),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), r"nn\.GroupNorm\(4, 4\)"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm=None"),
        (torch.jit.script(nn.Linear(4, 4)), "the module that it was made from"),
    ],
)
def test_layers_that_would_carry_records_past_the_bound_are_refused(layer, fix):
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(SettingError, match=rf"model\.1 = .*{fix}"):
        clipped_sum(model, cross_entropy, torch.randn(3, 4), torch.zeros(3, dtype=torch.long), clip=1.0)
    assert [report.rule for report in check_model(model, torch.randn(3, 4))][-1] == "refused"


def test_batch_norm_with_fixed_statistics_is_no_mixing():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
    right = torch.autograd.grad(cross_entropy(model(x), y).sum(), list(model.parameters()))
    for g, r in zip(found.grads.values(), right, strict=True):
        torch.testing.assert_close(g, r)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0.0}, "clip = 0.0: a bound on a gradient's norm from 1e-15 to 1e"),
        ({"clip": -1.0}, "clip = -1.0"),
        ({"clip": math.nan}, "clip = nan"),
        ({"clip": torch.ones(3)}, "one for each of 5 records"),
        ({"sizes": [2, 2]}, "add up to the 5 records"),
        ({"sizes": [6, -1]}, "add up to the 5 records"),
        ({"chunk": 0}, "chunk = 0"),
        ({"loss_fn": functional.cross_entropy}, "reduction='none'"),
        ({"model": nn.Sequential(nn.Flatten())}, "unfreeze"),
        ({"model": nn.Sequential(nn.Flatten(), nn.LazyLinear(3))}, "lazy"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(49, 3)).half()}, "float"),
    ],
)
def test_bad_arguments_are_named(change, message):
    x, y = images(5)
    given = {"model": small_cnn(), "loss_fn": cross_entropy, "clip": 1.0} | change
    model, loss_fn = given.pop("model"), given.pop("loss_fn")
    with pytest.raises(SettingError, match=message):
        clipped_sum(model, loss_fn, x, y, **given)


def test_the_report_names_each_layer_and_the_reason():
    model, (x, _) = small_cnn(), images(4)
    model[0].requires_grad_(False)
    kinds = {report.name: (report.kind, report.rule) for report in check_model(model, x)}
    fast = {"1": "GroupNorm", "3": "Conv2d", "5": "Linear", "8": "Linear"}
    assert kinds == {"0": ("Conv2d", "frozen")} | {name: (kind, "fast") for name, kind in fast.items()}
    report = check_model(Written(), x)
    assert {r.rule for r in report} == {"fallback"}
    assert "__setitem__" in report[0].advice


class Written(nn.Module):
    """Writes a parameter into the data, for which there is no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.out = nn.Parameter(torch.rand(7)), nn.Linear(49, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.flatten(1).clone()
        h[:, :7] = self.start
        return self.out(h)
