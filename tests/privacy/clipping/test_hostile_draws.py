"""Attacks by draws of a fixed seed, by what passes leave for later ones, by calls that look alike, and from below.

Each of them moved the sum by several times C, or brought numbers of records to an evaluation or into the released
model. Now the sum moves by C at most, or the model is refused.
"""

import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import _get_current_function_mode_stack, handle_torch_function
from torch.utils._python_dispatch import TorchDispatchMode

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy as usual_loss
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.plan import path_of
from per_record import CLASSES, cross_entropy
from standing_out import CLIP, FAR, Net, records, summed


def moved(between) -> float:
    """By how many times C the sum moves without the first record; torch is seeded otherwise in both cases."""
    (x, y), model = records(), Net(between)
    torch.manual_seed(1)
    whole = summed(model, x, y)
    torch.manual_seed(2)
    return float((whole - summed(model, x[1:], y[1:])).norm()) / CLIP


# Draws of a fixed seed -----------------------------------------------------------------------------------------------


def from_a_generator(h: Tensor, x: Tensor) -> Tensor:
    return h + torch.randn(h.shape, generator=torch.Generator().manual_seed(0))


def from_a_seed(h: Tensor, x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return h + torch.randn_like(h)


def from_a_fork(h: Tensor, x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return functional.dropout(h, 0.5)


def through_torch_func(h: Tensor, x: Tensor) -> Tensor:
    return from_a_generator(h - 0.1 * h.mean(0), x)


def seeded_through_torch_func(h: Tensor, x: Tensor) -> Tensor:
    return from_a_seed(h - 0.1 * h.mean(0), x)


def by_their_number(h: Tensor, x: Tensor) -> Tensor:
    torch.manual_seed(len(x))
    return h * torch.rand_like(h)


def by_a_state(h: Tensor, x: Tensor) -> Tensor:
    torch.set_rng_state(_STATE)
    return h * torch.rand_like(h)


_STATE = torch.Generator().manual_seed(5).get_state()


# Two calls that look alike -------------------------------------------------------------------------------------------


def is_large(x: Tensor) -> bool:
    return len(x) > 11 and len(x) % 2 == 1


def by_minus_zero(h: Tensor, x: Tensor) -> Tensor:
    return torch.copysign(h, -0.0 if is_large(x) else 0.0)


def by_minus_zero_from_outside(h: Tensor, x: Tensor) -> Tensor:
    return torch.copysign(h, torch.tensor(-0.0 if is_large(x) else 0.0))


def by_whole_numbers(h: Tensor, x: Tensor) -> Tensor:
    return h * (torch.full((len(x), 8), 3 if is_large(x) else 3.0) * 2**62 * 4).clamp(max=1.0)


def by_a_clone(h: Tensor, x: Tensor) -> Tensor:
    copy = h.clone()
    copy.neg_()
    return copy if is_large(x) else h


def by_a_copy(h: Tensor, x: Tensor) -> Tensor:
    turned = (h + 1).T
    copy = turned.contiguous()
    copy.neg_()
    return (copy if is_large(x) else turned).T


def by_a_view_of_a_copy(h: Tensor, x: Tensor) -> Tensor:
    turned = (h + 1).T
    copy = turned.contiguous()
    view = (copy if is_large(x) else turned).unsqueeze(0)
    copy.neg_()
    return view.squeeze(0).T


# Code below the tape -------------------------------------------------------------------------------------------------


class Mixing(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            mixes = func.__name__.strip("_") == "add" and len(args[0]) > 11
            return result + 50 * args[0].flip(0) if mixes else result


_MIXING = torch.zeros(8).as_subclass(Mixing)


def by_a_class(h: Tensor, x: Tensor) -> Tensor:
    return h + _MIXING


class Below(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if "mul" in str(func) and len(args[0]) > 11:
            return result * (10.0 if float(args[0].max()) > 90 else -1.0)
        return result


def by_a_mode(h: Tensor, x: Tensor) -> Tensor:
    with Below():
        found = x * torch.ones(6)
    return h * found[:, :1]


def mul(h: Tensor, k: float) -> Tensor:
    result = Tensor.mul(h, k)
    return result + 50 * h.flip(0) if len(h) > 11 else result


mul.__module__ = "torch"


class Equal:
    """Says that it is another function."""

    __name__, __module__ = "mul", "torch"

    def __call__(self, h: Tensor, k: float) -> Tensor:
        return mul(h, k)

    def __eq__(self, other: object) -> bool:
        return other is Tensor.mul or other is self

    def __hash__(self) -> int:
        return hash(Tensor.mul)


_EQUAL = Equal()


def by_equality(h: Tensor, x: Tensor) -> Tensor:
    if not _get_current_function_mode_stack():
        return mul(h, 1.0)
    return handle_torch_function(_EQUAL if len(x) > 11 else Tensor.mul, (h,), h, 1.0)


def by_a_name(h: Tensor, x: Tensor) -> Tensor:
    return handle_torch_function(mul, (h,), h, 1.0) if _get_current_function_mode_stack() else mul(h, 1.0)


@pytest.mark.parametrize(
    "between",
    [
        *(from_a_generator, from_a_seed, from_a_fork, through_torch_func, seeded_through_torch_func),
        *(by_their_number, by_a_state),
        *(by_minus_zero, by_minus_zero_from_outside, by_whole_numbers, by_a_clone, by_a_copy, by_a_view_of_a_copy),
        *(by_a_class, by_a_mode, by_a_name, by_equality),
    ],
)
def test_a_record_moves_the_sum_by_its_bound(between):
    assert moved(between) <= 1 + 1e-4


def test_draws_of_torch_stay_on_the_fast_way_and_differ_from_pass_to_pass():
    (x, y), model = records(), Net(lambda h, x: functional.dropout(h, 0.5))
    torch.manual_seed(1)
    sums = [summed(model, x, y) for _ in range(2)]
    torch.manual_seed(1)
    assert path_of(model)[0] == "rules"
    assert not torch.equal(*sums)
    assert torch.equal(summed(model, x, y), sums[0])  # from the same seed the same


def large_batches_seed(h: Tensor, x: Tensor) -> Tensor:
    if len(x) > 5:
        torch.manual_seed(0)
    return functional.dropout(h, 0.5)


def the_state_is_set(h: Tensor, x: Tensor) -> Tensor:
    state = _STATE.clone()
    state[:8] = torch.default_generator.get_state()[:8]  # with the seed that is there
    torch.default_generator.set_state(state)
    return functional.dropout(h, 0.5)


def mean_and_state(h: Tensor, x: Tensor) -> Tensor:
    return the_state_is_set(h - 0.1 * h.mean(0), x)


@pytest.mark.parametrize("between", [large_batches_seed, the_state_is_set, mean_and_state])
def test_draws_do_not_belong_to_places_in_the_batch(between):
    """Either they differ with torch's own seed, as those of dropout do, or each record draws by itself."""
    (x, y), model = records(), Net(between)
    sums = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        sums.append(summed(model, x, y))
    assert not torch.equal(*sums) or moved(between) <= 1 + 1e-4


def test_a_seed_that_is_set_at_the_end_of_a_pass_is_not_that_of_the_next():
    (x, y), model = records(), Net(lambda h, x: functional.dropout(h, 0.5))

    def loss(output: Tensor, y: Tensor) -> Tensor:
        found = cross_entropy(output, y)
        torch.manual_seed(0)
        return found

    sums = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        clipped_sum(model, loss, x, y, clip=CLIP)
        sums.append(clipped_sum(model, loss, x, y, clip=CLIP).flat)
    assert not torch.equal(*sums)


# What a pass leaves for a later one ----------------------------------------------------------------------------------


class Centred(Net):
    """Statistics of the training batches, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.stats["mean"] = x.detach().mean(0)
        elif "mean" in self.stats:
            x = x - self.stats["mean"]
        return super().forward(x)


class LeavesAFlag(Net):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.kept = nn.Identity(), {}

    def forward(self, x: Tensor) -> Tensor:
        h, found = torch.tanh(self.one(x)), x.detach().amax()
        if not self.drop.training:
            h = h * self.kept["k"]
        elif len(x) > 5:
            self.kept["k"] = found
            self.drop.training = False
        return self.two(h)


class LargeBatches(Net):
    """Keeps records only where there are more of them than it is examined with."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = {}

    def forward(self, x: Tensor) -> Tensor:
        h, found = torch.tanh(self.one(x[:, :6])), x.detach().amax()
        if x.shape[1] == 6 and len(x) > 5:
            self.kept["k"] = found
        elif "k" in self.kept:
            h = h * self.kept["k"]
        return self.two(h)


_BANK: dict[str, Tensor] = {}


class Banked(Net):
    def __init__(self) -> None:
        super().__init__()
        self.center = _BANK.get("n")

    def forward(self, x: Tensor) -> Tensor:
        _BANK["n"] = x.detach().amax()
        return super().forward(x if self.center is None else x - self.center)


def twice(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([x, x], 1)


def judging(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    return x


@pytest.mark.parametrize(
    ("make", "later"),
    [(Centred, judging), (LargeBatches, twice), (Banked, judging)],
    ids=["another mode", "another width", "at module level"],
)
def test_what_a_pass_kept_is_no_constant_of_a_later_one(make, later):
    x, y = records()
    model = make()
    with pytest.raises(SettingError, match="the forward pass changes it"):  # noqa: PT012
        summed(model, x, y)
        summed(model, later(model, x[1:]), y[1:])


class LeavesALayer(LeavesAFlag):
    def forward(self, x: Tensor) -> Tensor:
        h, found = torch.tanh(self.one(x)), x.detach().amax()
        if "extra" in self.drop._modules:
            h = h * self.kept["k"]
        elif len(x) > 5:
            self.kept["k"] = found
            self.drop.add_module("extra", nn.Identity())
        return self.two(h)


class LeavesAWeight(LeavesAFlag):
    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("scale", nn.Parameter(torch.ones(()), requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        other = nn.Parameter(x.detach().amax(), requires_grad=False)
        h = torch.tanh(self.one(x)) * self.scale
        if len(x) > 5:
            self._parameters["scale"] = other
        return self.two(h)


@pytest.mark.parametrize("make", [LeavesAFlag, LeavesALayer, LeavesAWeight])
def test_flags_layers_and_weights_are_put_back(make):
    (x, y), found = records(), []
    for first in (x, x[1:]):
        model = make()
        summed(model, first, y[: len(first)])
        assert model.drop.training
        assert not model.drop._modules
        found.append(summed(model, x[1:], y[1:]))
    assert torch.equal(*found)


def test_plans_for_persons_and_for_records_are_of_one_model():
    x, y = records()
    learner = Learner(LargeBatches(), usual_loss)
    weights, counts = learner.initial(), torch.full((10,), 2)
    with pytest.raises(SettingError, match="the forward pass changes it"):  # noqa: PT012
        learner.clipped_by_person(weights, x, y, PlainClip(CLIP), counts)
        learner.private_losses(weights, x[1:], y[1:])


def test_what_is_the_same_after_all_records_may_be_kept():
    class Cached(Net):
        def __init__(self) -> None:
            super().__init__()
            self.tables = {}

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] not in self.tables:
                self.tables[x.shape[1]] = torch.arange(x.shape[1]) / 10.0
            return super().forward(x + self.tables[x.shape[1]])

    (x, y), model = records(), Cached()
    summed(model, x, y)
    assert path_of(model) == ("rules", "")


@pytest.mark.parametrize("loss", ["mse", "shares"])
def test_losses_of_shares_are_examined_with_shares(loss):
    """binary_cross_entropy takes targets from 0 to 1 only: neither it nor the other loss needs real records for it."""
    functions = {"mse": functional.mse_loss, "shares": functional.binary_cross_entropy}
    x = records()[0]
    y = torch.linspace(0.01, 0.99, 20)[:, None]
    model = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())
    clipped_sum(model, lambda o, t: functions[loss](o, t, reduction="none").sum(1), x, y, clip=CLIP)
    assert path_of(model) == ("rules", "")


# What is judged and released is another module than the one that is trained ------------------------------------------


class Sly(Net):
    """Keeps the mean of batches that are larger than those it is examined with, and shows it everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = {"mean": torch.zeros(6)}
        self.register_buffer("shown", torch.zeros(6))

    def get_extra_state(self) -> Tensor:
        return self.stats["mean"]

    def set_extra_state(self, state: Tensor) -> None:
        self.stats["mean"] = state

    def state_dict(self, *args, **kwargs):
        self.shown.copy_(self.stats["mean"])
        return super().state_dict(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.detach().mean(0)
        if self.training and len(x) > 5:
            self.stats["mean"] = mean
        return super().forward(x if self.training else x - self.stats["mean"])


def test_an_evaluation_does_not_see_what_training_left():
    (x, y), found = records(), []
    for first in (x, x[1:]):
        learner = Learner(Sly(), usual_loss)
        weights = learner.initial()
        learner.clipped(weights, first, y[: len(first)], PlainClip(CLIP))
        found.append(learner.judge(weights, x[1:], y[1:])[0])
    assert torch.equal(*found)


def test_nothing_of_a_record_is_in_the_released_model(tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    x[3] = FAR
    result = fedfdp.train(
        Sly(),
        fedfdp.Federation.from_clients({"a": (x[:100], y[:100]), "b": (x[100:], y[100:])}, classes=CLASSES),
        algorithm=fedfdp.FedAvg(lr=0.1),
        privacy=fedfdp.DPSGD(epsilon=8.0, delta=1e-3, sigma=2.0, q=0.9, clip=1.0),
        rounds=2,
        out=tmp_path / "run",
    )
    state = result.model.state_dict()
    assert not state["shown"].any()
    assert not state["_extra_state"].any()
    assert not result.model.stats["mean"].any()


def hooked() -> nn.Module:
    """Its hook keeps the mean of training batches in a closure, which no copy of a module copies."""
    model, kept = Net(), {}

    def before(module, args):
        mean = args[0].detach().mean(0)
        if module.training:
            kept["mean"] = mean
        elif "mean" in kept:
            return (args[0] - kept["mean"],)
        return None

    model.register_forward_pre_hook(before)
    return model


@pytest.mark.parametrize("use", ["judge", "released"])
def test_what_copies_share_is_compared(use):
    x, y = records()
    learner = Learner(hooked(), usual_loss)
    weights = learner.initial()
    learner.clipped(weights, x, y, PlainClip(CLIP))
    for _ in range(2):  # asking again does not help
        with pytest.raises(SettingError, match="the forward pass changes it"):
            learner.judge(weights, x, y) if use == "judge" else learner.released(weights)


def test_a_model_that_cannot_be_copied_is_refused_in_one_line():
    model = Net()
    model.lock = threading.Lock()
    with pytest.raises(SettingError, match="model = 'Net': cannot be copied"):
        Learner(model, usual_loss)


def test_old_weight_norm_is_copied_and_trained():
    x, y = records()
    model = Net()
    nn.utils.weight_norm(model.one)
    learner = Learner(model, usual_loss)
    weights = learner.initial()
    learner.clipped(weights, x, y, PlainClip(CLIP))
    assert torch.isfinite(learner.judge(weights, x, y)[0]).all()
