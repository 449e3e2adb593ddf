"""Attacks on the bound by models: mixing by chance or by size, state in odd places, hooks, gradients out of sight.

Each of them moved the sum by more than C when a pass was judged by a few numbers. Now the sum moves by C at most, or
the model is refused with the place named.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedfdp
from fedfdp.algorithms.base import Population
from fedfdp.core.errors import SettingError
from fedfdp.engines.local import LocalEngine
from fedfdp.models.learner import Learner
from fedfdp.privacy.clipping import clipped_sum, record_losses
from fedfdp.privacy.clipping.by_rules import rules_pass
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.plan import _plans
from fedfdp.privacy.clipping.state import COPIED
from fedfdp.privacy.noise.randomness import Seeded

CLIP = 0.5
WITHIN = 1 + 1e-4


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def records(count: int, seed: int = 0, width: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(count) % 3


def total(model: nn.Module, x: Tensor, y: Tensor, loss: Callable = cross_entropy, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return clipped_sum(model, loss, x, y, clip=CLIP).flat


def moves(model: nn.Module, x: Tensor, y: Tensor, loss: Callable = cross_entropy, seed: int = 0) -> float:
    """By how many times C the sum moves at most when one of the records is taken out."""
    whole = total(model, x, y, loss, seed)
    found = []
    for who in range(0, len(x), 1 + len(x) // 40):
        rest = [i for i in range(len(x)) if i != who]
        found.append(float((whole - total(model, x[rest], y[rest], loss, seed)).norm()) / CLIP)
    return max(found)


def hows(model: nn.Module) -> list[str]:
    return [plan.how for plan in _plans[model].values()]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(self.first(x))))

    def first(self, x: Tensor) -> Tensor:
        return x


# By chance ------------------------------------------------------------------------------------------------------------


class FlipsByChance(Net):
    def first(self, x: Tensor) -> Tensor:
        if self.training and torch.rand(()) < 0.3:
            return x.flip(0)
        return x


class FlipsByPythonsChance(Net):
    def first(self, x: Tensor) -> Tensor:
        if np.random.default_rng(int(torch.randint(2**31, ()))).random() < 0.3:
            return x.roll(1, 0)
        return x


@pytest.mark.parametrize("kind", [FlipsByChance, FlipsByPythonsChance])
def test_a_model_that_mixes_by_chance_is_never_run_while_it_mixes(kind):
    model, (x, y) = kind(), records(40)
    assert max(moves(model, x, y, seed=seed) for seed in range(12)) <= WITHIN


def test_a_record_of_one_holder_does_not_move_the_sum_of_another_by_chance():
    model, (x, y) = FlipsByChance(), records(40)
    changed = x.clone()
    changed[0] *= 100
    for seed in range(12):
        sums = []
        for batch in (x, changed):
            torch.manual_seed(seed)
            sums.append(clipped_sum(model, cross_entropy, batch, y, clip=CLIP, sizes=[10] * 4).flat)
        assert float((sums[0] - sums[1])[1:].norm(dim=1).max()) <= 1e-5


# By size --------------------------------------------------------------------------------------------------------------


class Capacity(Net):
    """An expert that takes the first eight records of the batch."""

    def first(self, x: Tensor) -> Tensor:
        wanted = (x[:, 0] > 0).long()
        taken = wanted * (wanted.cumsum(0) <= 8)
        return x * (1 + 3 * taken[:, None])


class BySize(Net):
    def first(self, x: Tensor) -> Tensor:
        return x if len(x) <= 8 else x - x.mean(0)


class ByALateSlice(Net):
    """Only what lies beyond the fiftieth record is touched."""

    def first(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[50:] = 0
        return x


class ShiftedByMany(Net):
    """A shift by a number that two, three, five and more records divide."""

    def first(self, x: Tensor) -> Tensor:
        return x + 5 * x.roll(27720, 0)


class ScaledByMean(Net):
    def first(self, x: Tensor) -> Tensor:
        return x * (1 + len(x) / 10)


def hard_examples(output: Tensor, y: Tensor) -> Tensor:
    losses = cross_entropy(output, y)
    if len(losses) <= 8:
        return losses
    return losses * (losses >= losses.topk(8).values.min())


def hardest(output: Tensor, y: Tensor) -> Tensor:
    losses = cross_entropy(output, y)
    return losses * (losses >= losses.topk(min(8, len(losses))).values.min())


@pytest.mark.parametrize("count", [20, 70])
@pytest.mark.parametrize("kind", [Capacity, BySize, ByALateSlice, ShiftedByMany, ScaledByMean])
def test_mixing_that_begins_with_larger_batches(kind, count):
    model, (x, y) = kind(), records(count)
    total(model, *records(3))
    assert moves(model, x, y) <= WITHIN


@pytest.mark.parametrize("loss", [hard_examples, hardest])
def test_a_loss_that_picks_the_hardest_records_of_a_batch(loss):
    model, (x, y) = Net(), records(40)
    total(model, *records(3), loss)
    assert moves(model, x, y, loss) <= WITHIN
    alone = torch.cat([cross_entropy(model(x[i : i + 1]), y[i : i + 1]) for i in range(40)]).detach()
    torch.testing.assert_close(record_losses(model, loss, x, y), alone, rtol=1e-5, atol=1e-6)


# By what it keeps -----------------------------------------------------------------------------------------------------


class Keeper:
    def __init__(self) -> None:
        self.mean = np.zeros(6, dtype=np.float32)
        self.inner = {"mean": torch.zeros(6)}
        self.number = [0.0]


class InAnObject(Net):
    """A running mean in numpy, in an object that the module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Keeper()

    def first(self, x: Tensor) -> Tensor:
        self.kept.mean = 0.5 * self.kept.mean + 0.5 * x.detach().numpy().mean(0)
        return x - torch.from_numpy(self.kept.mean)


class InADict(InAnObject):
    def first(self, x: Tensor) -> Tensor:
        self.kept.inner["mean"] = 0.5 * self.kept.inner["mean"] + 0.5 * x.detach().mean(0)
        return x - self.kept.inner["mean"]


class InAListInPlace(InAnObject):
    def first(self, x: Tensor) -> Tensor:
        self.kept.inner["mean"].mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
        return x - self.kept.inner["mean"]


class InANumber(InAnObject):
    def first(self, x: Tensor) -> Tensor:
        self.kept.number[0] = 0.5 * self.kept.number[0] + float(x.detach().mean())
        return x - self.kept.number[0]


class InTheClass(Net):
    seen: list[float] = []  # noqa: RUF012

    def first(self, x: Tensor) -> Tensor:
        type(self).seen.append(float(x.detach().mean()))
        return x - sum(type(self).seen[-50:])


_global = {"mean": np.zeros(6, dtype=np.float32)}


class InAGlobal(Net):
    def first(self, x: Tensor) -> Tensor:
        _global["mean"] = 0.5 * _global["mean"] + 0.5 * x.detach().numpy().mean(0)
        return x - torch.from_numpy(_global["mean"])


class FirstBatchKept(InAnObject):
    """Centres all records by the first it ever saw."""

    def first(self, x: Tensor) -> Tensor:
        if "first" not in self.kept.inner:
            self.kept.inner["first"] = x.detach().mean(0) * 100
        return x - self.kept.inner["first"]


STATE = [InAnObject, InADict, InAListInPlace, InANumber, InTheClass, InAGlobal]


@pytest.mark.parametrize("kind", STATE)
def test_state_in_odd_places_is_refused_with_its_place(kind):
    model, (x, y) = kind(), records(20)
    with pytest.raises(SettingError, match=r"(model|loss)\S*.*forward pass changes it"):
        total(model, x, y)
    # What outlives the model spoils the process, and so the reason differs.
    with pytest.raises(SettingError, match=r"forward pass changes it|an earlier run in this process has changed it"):
        record_losses(model, cross_entropy, x, y)


def test_the_place_is_named():
    with pytest.raises(SettingError, match=r"model\.kept = "):
        total(InAnObject(), *records(20))


def test_state_in_a_loss_is_refused_too():
    kept = {"mean": 0.0}

    def loss(output: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(output, y)
        kept["mean"] = 0.9 * kept["mean"] + 0.1 * float(losses.detach().mean())
        return losses * (1 + kept["mean"])

    with pytest.raises(SettingError, match=r"loss = .*forward pass changes it"):
        total(Net(), *records(20), loss)


def test_what_the_first_records_leave_behind_is_not_kept_silently():
    """What a model sets up at its first pass, it sets up on zeros."""
    x, y = records(20)
    sums = [total(FirstBatchKept(), x + shift, y) for shift in (0.0, 3.0)]
    plain = [total(Net(), x + shift, y) for shift in (0.0, 3.0)]
    for found, right in zip(sums, plain, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6)


class Counts(Net):
    """State that no number of the result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []

    def first(self, x: Tensor) -> Tensor:
        self.log.append(len(x))
        return x


def test_state_that_changes_nothing_is_no_obstacle():
    model, (x, y) = Counts(), records(20)
    torch.testing.assert_close(total(model, x, y), total(Net(), x, y))
    assert hows(model) == ["rules"]


class AfterManyCalls(Counts):
    """Mixes once it has seen enough; until then it is like any other."""

    def first(self, x: Tensor) -> Tensor:
        self.log.append(len(x))
        return x.flip(0) if len(self.log) > 30 else x


def test_a_model_that_changes_with_the_passes_is_refused_when_it_does():
    model, (x, y) = AfterManyCalls(), records(20)
    for _ in range(10):
        total(model, x, y)
    model.log += [0] * 30
    with pytest.raises(SettingError, match=r"model\.log = .*forward pass changes it"):
        moves(model, x, y)


class CatchesErrors(Net):
    """What is raised within it, it takes for its own business."""

    def first(self, x: Tensor) -> Tensor:
        if len(x) <= 8:
            return x
        try:
            return x.flip(0)
        except Exception:
            return x.flip(0)


def test_a_pass_that_was_ended_is_not_used_even_if_the_model_goes_on():
    model, (x, y) = CatchesErrors(), records(20)
    total(model, *records(3))
    assert moves(model, x, y) <= WITHIN


class SeedsByRecords(Net):
    """The draws of one pass are those that the last record's numbers chose."""

    def first(self, x: Tensor) -> Tensor:
        x = functional.dropout(x, 0.5)
        torch.manual_seed(int(x.detach().abs().sum() * 1e4))
        return x


def test_a_seed_set_by_one_record_does_not_reach_the_draws_of_another():
    model, (x, y) = SeedsByRecords(), records(8)
    changed = x.clone()
    changed[0] *= 2
    sums = []
    for batch in (x, changed):
        torch.manual_seed(0)
        sums.append(clipped_sum(model, cross_entropy, batch, y, clip=CLIP, sizes=[1, 7]).flat[1])
    assert torch.equal(*sums)


# Hooks ----------------------------------------------------------------------------------------------------------------


class InstallsLazily(Net):
    """At its first pass it hooks its layers and remembers that it did, as transformers do for hidden states."""

    def forward(self, x: Tensor) -> Tensor:
        if not getattr(self, "_installed", False):
            self.one.register_forward_hook(lambda layer, args, output: output * 1.01)
            self._installed = True
        return super().forward(x)


def test_hooks_that_a_model_installs_at_its_first_pass_are_installed_once():
    model, (x, y) = InstallsLazily(), records(20)
    for _ in range(4):
        total(model, x, y)
        record_losses(model, cross_entropy, x, y)
    assert len(model.one._forward_hooks) == 1
    fresh = InstallsLazily()
    torch.testing.assert_close(model(x), fresh(x))


# Gradients out of sight ---------------------------------------------------------------------------------------------


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


class BehindZeros(nn.Module):
    """A parameter that only a function of its own uses, behind a layer that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.scale, self.out = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(Scale.apply(x, self.scale))


class MixesGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad + 5 * grad.flip(0)


class MixesBackwards(Net):
    def first(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.two(MixesGradients.apply(torch.tanh(self.one(x))))


class HooksGradients(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x))
        if h.requires_grad:
            h.register_hook(lambda grad: grad + 5 * grad.flip(0))
        return self.two(h)


def by_autograd(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    summed = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for i in range(len(x)):
        grads = torch.autograd.grad(cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum(), list(model.parameters()))
        row = torch.cat([grad.flatten().double() for grad in grads])
        summed += row * min(1.0, CLIP / float(row.norm()))
    return summed


def test_a_parameter_behind_zeros_is_trained_once_they_are_none():
    model, (x, y) = BehindZeros(), records(20)
    total(model, x, y)
    nn.init.normal_(model.out.weight)
    torch.testing.assert_close(total(model, x, y).double(), by_autograd(model, x, y), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [MixesBackwards, HooksGradients])
def test_records_do_not_meet_in_the_backward_pass(kind):
    model, (x, y) = kind(), records(20)
    assert moves(model, x, y) <= WITHIN


# What decided the proof ----------------------------------------------------------------------------------------------


class Centred(Net):
    def first(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def test_one_finite_record_in_a_batch_does_not_skip_the_check():
    model, (x, y) = Centred(), records(20)
    spoilt = x.clone()
    spoilt[1:] = torch.nan
    total(model, spoilt, y)
    assert moves(model, x, y) <= WITHIN


def test_weights_that_a_coordinator_sends_do_not_decide_the_proof():
    model, (x, y) = Centred(), records(20)
    right = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.data.zero_()
    total(model, x, y)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(right[name])
    assert moves(model, x, y) <= WITHIN


def test_two_closures_of_one_function_are_two_losses():
    def weighed(mix: float) -> Callable:
        def loss(output: Tensor, y: Tensor) -> Tensor:
            losses = cross_entropy(output, y)
            return losses + mix * losses.mean() if mix else losses

        return loss

    model, (x, y) = Net(), records(20)
    total(model, x, y, weighed(0.0))
    assert moves(model, x, y, weighed(5.0)) <= WITHIN
    torch.testing.assert_close(total(model, x, y, weighed(0.0)), total(Net(), x, y))


# Memory, writing and structure ----------------------------------------------------------------------------------------


class WritesToAView(Net):
    """Outliers of the batch are cut through a view of a part of it."""

    def first(self, x: Tensor) -> Tensor:
        h = x.clone()
        h[: len(h) // 2].copy_(h[len(h) - len(h) // 2 :])
        return h


class WritesIntoConstants(Net):
    def __init__(self) -> None:
        super().__init__()
        self.queue = {"kept": torch.zeros(200, 6)}

    def first(self, x: Tensor) -> Tensor:
        queue = torch.zeros(200, 6)
        queue[: len(x)].copy_(x)
        return x - queue.sum(0)


class UnseenWriting(Net):
    """Writes under inference mode, where tensors have no versions."""

    def first(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            h = x * 1
            h.clamp_(max=2.0).sub_(h.mean(0))
        return h.clone()


class LeftInMemory(Net):
    """Reads memory that it has not written: whatever was there."""

    def first(self, x: Tensor) -> Tensor:
        gone = x - x.mean(0)
        del gone
        out = torch.empty(len(x), 6)
        out[:, :3] = x[:, :3]
        return out


class BeyondItsRecord(Net):
    """Reads from where the batch begins, whichever record it is given."""

    def first(self, x: Tensor) -> Tensor:
        return x + 5 * torch.as_strided(x, (len(x), 6), (6, 1), 0)


class FarAlongTheBatch(Net):
    """A convolution over the batch whose reach is longer than any trial."""

    def first(self, x: Tensor) -> Tensor:
        kernel = torch.tensor([[[0.0, 1.0, 5.0]]])
        return functional.conv1d(x.T[:, None], kernel, padding=15, dilation=15)[:, 0].T


class CopiesBySize(Net):
    def first(self, x: Tensor) -> Tensor:
        h = x + 0
        copied = h if len(h) >= 20 else h.clone()
        copied.mul_(-3)
        return h


class AddsLayers(Net):
    """Keeps a number of the record in a layer that it puts in place of the last one."""

    def first(self, x: Tensor) -> Tensor:
        before = sum(layer.number for name, layer in self._modules.items() if name == "extra")
        layer = nn.Identity()
        layer.number = float(x.detach().sum())
        self.add_module("extra", layer)
        return x * (1 + before)


class ChangesFrozenWeights(Net):
    numbers = 1

    def __init__(self) -> None:
        super().__init__()
        self.largest = nn.Parameter(torch.ones(self.numbers), requires_grad=False)

    def first(self, x: Tensor) -> Tensor:
        top = float(x.detach().abs().max())
        if top > 2:
            self.largest.data.fill_(top)
        return x / self.largest[-1]


class ChangesLargeFrozenWeights(ChangesFrozenWeights):
    numbers = COPIED + 1  # no copy of it is kept


class TooLargeAnEpsilon(Net):
    def first(self, x: Tensor) -> Tensor:
        return 100 * functional.normalize(x, dim=0, eps=100)


FIRST = {"three": lambda: records(3), "one": lambda: records(1), "zeros": lambda: (torch.zeros(3, 6), torch.arange(3))}
MEMORY = [
    *(WritesToAView, WritesIntoConstants, UnseenWriting, LeftInMemory, BeyondItsRecord, FarAlongTheBatch, CopiesBySize),
    *(AddsLayers, ChangesFrozenWeights, ChangesLargeFrozenWeights, TooLargeAnEpsilon),
]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("kind", MEMORY)
def test_memory_writing_and_structure(kind, first):
    """Whatever the model was first looked at with: the sum moves by C at most, or the model is refused."""
    model, (x, y) = kind(), records(40)
    try:
        total(model, *FIRST[first]())
        moved = moves(model, 30 * x, y)
    except SettingError as refused:
        assert "forward pass changes" in str(refused)  # noqa: PT017
        return
    assert moved <= WITHIN


# Many clients, and what is handed out ---------------------------------------------------------------------------------


class DrawsInForward(nn.Module):
    """Drops by a function rather than a layer, so that nothing in the model says that it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.kept = nn.Linear(6, 3), []

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x.detach())
        return self.linear(functional.dropout(x, 0.5, self.training))


def holders(first: float) -> fedfdp.Federation:
    x, y = records(120)
    x = torch.cat([first * x[:60], x[60:]])
    return fedfdp.Federation.from_clients({"a": (x[:60], y[:60]), "b": (x[60:], y[60:])})


def uploads(federation: fedfdp.Federation) -> dict[str, Tensor]:
    torch.manual_seed(0)
    privacy = fedfdp.DPSGD(delta=1e-5, epsilon=None, sigma=1.0, q=0.5, clip=1.0, sigma_loss=5.0)
    learner = Learner(DrawsInForward(), cross_entropy)
    engine = LocalEngine(
        federation, learner, fedfdp.FedAvg(lr=1.0), privacy=privacy, randomness=Seeded(3), book=None, fused=True
    )
    algorithm = engine.algorithm
    population = Population(2, 90, 45, 3)
    broadcast = algorithm.broadcast(algorithm.init(learner.initial(), population, privacy))
    return {upload.client: upload.update["linear.weight"] for upload, _ in engine.round(broadcast, {})}


def test_draws_of_one_client_do_not_depend_on_the_batches_of_another():
    """Its noise does not either: two uploads that differ by the draws alone would show what is under the noise."""
    one, other = uploads(holders(1.0)), uploads(holders(2.0))
    assert torch.equal(one["b"], other["b"])
    assert not torch.allclose(one["a"], other["a"])


def test_what_a_model_kept_of_records_is_not_handed_out():
    privacy = fedfdp.DPSGD(delta=1e-5, epsilon=None, sigma=1.0, q=0.5, clip=1.0, sigma_loss=5.0)
    given = DrawsInForward()
    result = fedfdp.train(given, holders(1.0), algorithm=fedfdp.FedAvg(lr=1.0), privacy=privacy, rounds=2)
    assert result.model.kept == []
    assert not torch.equal(result.model.linear.weight, given.linear.weight)


def test_attention_with_dropout_is_fast():
    """Its kernel, and the layout of what it gives, is another one with dropout than without."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)  # dropout 0.1 is its default
    model = nn.Sequential(nn.Unflatten(1, (3, 6)), layer, nn.Flatten(), nn.Linear(18, 3))
    x, y = torch.randn(20, 18), torch.arange(20) % 3
    found = clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    assert hows(model) == ["rules"]
    (plan,) = _plans[model].values()
    rules_pass(Job(model, cross_entropy, dict(model.named_parameters())), x, y, plan.proven)
    assert bool(found.flat.isfinite().all())
