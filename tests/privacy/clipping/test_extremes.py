"""The bound at both ends of every range: huge and tiny weights, inputs and targets, every layer, every coefficient.

Whatever they are, a sum is finite and one record moves it by C at most; so do the private loss and the counts.
"""

import math
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfdp.algorithms.base import LossQuery
from fedfdp.core import ranges
from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.fairness.coefficients import AutomaticClip, BoundedClip, Coefficient, PaperClip, PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.contributions import row_norms
from fedfdp.privacy.clipping.persons import Together, clipped_by_person
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.client import LocalClient
from support import Given

BATCH = 4
# A norm in single precision is right to 1e-5. And two sums of BATCH terms of at most C: each addition in them is right
# to 2⁻²⁴ of what was added up.
ALLOWED = 1 + 1e-5 + 2 * BATCH**2 * 2.0**-24
PAIRS = ((-13, -13), (-16, -16), (-20, 19), (19, -20), (30, -40), (19, 19), (-40, 38))  # of inputs and targets
SCALES = (-45, -38, -30, -20, -16, -13, -8, -3, 0, 0, 0, 3, 9, 15, 19, 25, 30, 38)
BOUNDS = (ranges.BOUND.low, ranges.CLIP.low, 1e-3, 1.0, ranges.CLIP.high, ranges.BOUND.high)


class Positions(nn.Module):
    """Learned offsets and gains for each place."""

    def __init__(self, shift: bool) -> None:
        super().__init__()
        self.p, self.shift = nn.Parameter(torch.randn(3, 5)), shift

    def forward(self, x: Tensor) -> Tensor:
        return x + self.p if self.shift else x * self.p


class Twice(nn.Module):
    """One layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Odd(nn.Module):
    """A parameter that no rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x * self.p.exp(), self.p)


class Mixed(nn.Module):
    """Layers of both precisions; the loss has that of the last."""

    def __init__(self, first: torch.dtype, last: torch.dtype) -> None:
        super().__init__()
        self.rows, self.out = nn.Linear(5, 4).to(first), nn.Linear(12, 3).to(last)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.rows(x.to(self.rows.weight.dtype))).flatten(1).to(self.out.weight.dtype))


# The layer, and the shape of one record.
LAYERS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), (5,)),
    "linear without bias": (lambda: nn.Linear(6, 7, bias=False), (6,)),
    "linear over rows": (lambda: nn.Linear(5, 3), (4, 5)),
    "wide linear over rows": (lambda: nn.Linear(300, 301, bias=False), (3, 300)),
    "long linear": (lambda: nn.Linear(2500, 3), (2500,)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5)),
    "convolution in groups": (lambda: nn.Conv1d(4, 6, 3, stride=2, groups=2), (4, 9)),
    "wide convolution": (lambda: nn.Conv2d(64, 128, 3, padding=1, bias=False), (64, 3, 3)),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 2)), (3, 5)),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Conv1d(4, 2, 1)), (4, 6)),
    "shift": (lambda: Positions(shift=True), (3, 5)),
    "gain": (lambda: Positions(shift=False), (3, 5)),
    "shared": (Twice, (5,)),
    "by torch.func": (Odd, (5,)),
    "single, then double": (lambda: Mixed(torch.float32, torch.float64), (3, 5)),
    "double, then single": (lambda: Mixed(torch.float64, torch.float32), (3, 5)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4), nn.Tanh(), nn.Linear(4, 3)), (6,)),
}


def slope(output: Tensor, y: Tensor) -> Tensor:
    """The target is the gradient at the output."""
    return (output.flatten(1) * y).sum(1)


def square(output: Tensor, y: Tensor) -> Tensor:
    return (output.flatten(1) - y).square().sum(1)


def coefficients(chance: random.Random, clip: float) -> Coefficient:
    lam, kappa = chance.choice((0.0, 1.0, ranges.LAMBDA.high)), chance.choice((1.0, 2.0, ranges.KAPPA.high))
    reference = chance.choice((0.0, -1.0, ranges.LOSS.low, ranges.LOSS.high))
    gamma = chance.choice((ranges.GAMMA.low, 0.01, ranges.GAMMA.high))
    return chance.choice(
        (
            PlainClip(clip),
            PaperClip(clip, lam, reference),
            PaperClip(clip, 1e35, reference),  # more than a setting may be: the bound is the kernel's alone
            BoundedClip(clip, lam, reference, kappa),
            AutomaticClip(clip, lam, reference, kappa, gamma),
        )
    )


def extreme(chance: random.Random, shape: tuple[int, ...], scale: int) -> Tensor:
    """A record's numbers: of one size or of several, now and then with one that is none."""
    numbers = torch.randn(shape, dtype=torch.float64)
    if chance.random() < 0.2:
        numbers *= torch.tensor([10.0 ** chance.choice(SCALES) for _ in range(shape[-1])], dtype=torch.float64)
    numbers *= 10.0**scale
    if chance.random() < 0.05:
        numbers.view(-1)[0] = chance.choice((math.inf, -math.inf, math.nan))
    return numbers


def records(chance: random.Random, count: int, shape: tuple[int, ...], outputs: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, in double precision."""
    single = [(scale, other) for scale in SCALES for other in SCALES]
    scales = [chance.choice(PAIRS if chance.random() < 0.4 else single) for _ in range(count)]
    x = torch.stack([extreme(chance, shape, scale) for scale, _ in scales])
    return x, torch.stack([extreme(chance, (outputs,), scale) for _, scale in scales])


def tried(seed: int) -> tuple[str, float]:
    """The layer of this seed, and by how many times C the worst record moves the sum."""
    torch.manual_seed(seed)
    chance = random.Random(seed)
    name = chance.choice(list(LAYERS))
    make, shape = LAYERS[name]
    model, loss = make(), chance.choice((slope, square))
    if chance.random() < 0.2 and name not in ("single, then double", "double, then single"):
        model = model.double()
    like = next(model.parameters())
    words = torch.randint(7, (BATCH, *shape))
    ordinary = words if name == "embedding" else torch.randn(BATCH, *shape, dtype=like.dtype)
    outputs = model(ordinary).flatten(1).shape[1]
    # An ordinary pass first: how the model is run is decided by what it is, not by these numbers.
    clipped_sum(model, loss, ordinary, torch.randn(BATCH, outputs, dtype=like.dtype), clip=1.0)
    for parameter in model.parameters():
        size = 10.0 ** chance.choice(SCALES)
        parameter.data = (parameter.data.double() * size).to(parameter.dtype).nan_to_num()  # a node refuses infinities
    x, y = (part.to(like.dtype) for part in records(chance, BATCH, shape, outputs))
    x = words if name == "embedding" else x
    clip = chance.choice(BOUNDS)
    given = {"clip": clip, "coefficient": coefficients(chance, clip)}
    whole = clipped_sum(model, loss, x, y, **given, chunk=chance.choice((None, 3))).flat.double()
    assert whole.isfinite().all(), (seed, name)
    worst = 0.0
    for j in range(BATCH):
        rest = torch.arange(BATCH) != j
        moved = whole - clipped_sum(model, loss, x[rest], y[rest], **given).flat.double()
        worst = max(worst, float(moved.norm()) / clip)
    return name, worst


def holds(seeds: range) -> None:
    reached: dict[str, float] = {}
    for seed in seeds:
        name, worst = tried(seed)
        assert worst <= ALLOWED, (seed, name, worst)
        reached[name] = max(worst, reached.get(name, 0.0))
    assert reached.keys() == LAYERS.keys()
    assert min(reached.values()) > 0.99  # else it was no test of the bound: some record of each layer came up to it


def test_no_record_moves_a_sum_by_more_than_the_bound():
    holds(range(250))


@pytest.mark.slow
def test_no_record_moves_a_sum_by_more_than_the_bound_at_length():
    holds(range(1000, 4000))


@pytest.mark.parametrize("clip", [1e-43, 1e-16, 1e16, 1e38, 1e39, math.inf])
def test_a_bound_that_single_precision_cannot_keep_is_refused(clip):
    """At C = 1e-43 a record contributed 1.98·C; at 1e39 one overflowed."""
    model, x = nn.Linear(5, 3), torch.randn(2, 5)
    for given in (clip, torch.tensor([1.0, clip], dtype=torch.float64)):
        with pytest.raises(SettingError, match=r"clip = .*: a bound on a gradient's norm from 1e-15 to 1e"):
            clipped_sum(model, square, x, torch.randn(2, 3), clip=given)


@pytest.mark.parametrize("size", [1e-13, 1e-15])
def test_a_wide_layers_norm_does_not_vanish_with_the_products_of_its_squares(size):
    """Σ (a_t·a_s)(g_t·g_s) was 0 in single precision, and one record contributed 726·C."""
    torch.manual_seed(0)
    model, clip = nn.Linear(400, 400, bias=False), 1e-3
    clipped_sum(model, slope, torch.randn(2, 4, 400), torch.randn(2, 1600), clip=clip)
    x, y = size * torch.randn(2, 4, 400), 1e-13 * torch.randn(2, 1600)
    x[1], y[1] = 0, 0  # which adds nothing
    alone = clipped_sum(model, slope, x, y, clip=clip, coefficient=PaperClip(clip, 1e20, -1e15))
    assert 0 < float(alone.flat.double().norm()) <= clip * ALLOWED


@pytest.mark.parametrize("value", [0.1, 0.7, 1.3, 1.57, 1.9])
def test_norms_are_right_to_the_allowance_however_rows_lie_in_memory(value):
    rows = torch.full((2048, 16), value).T
    exact = math.sqrt(2048) * float(np.float32(value))
    assert float((row_norms(rows) / exact - 1).abs().max()) <= 1e-5


def test_sums_rounded_to_less_than_single_precision_are_refused():
    model, x, y = nn.Linear(5, 3), torch.randn(2, 5), torch.randn(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(SettingError, match=r"torch\.autocast = True"):
        clipped_sum(model, square, x, y, clip=1.0)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(SettingError, match="float32_matmul_precision = 'medium': private sums need"):
            clipped_sum(model, square, x, y, clip=1.0)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert clipped_sum(model, square, x, y, clip=1.0).flat.isfinite().all()


@pytest.mark.parametrize("bad", [math.inf, math.nan, 3e38, 1e-45])
def test_one_clients_records_do_not_touch_anothers_sum(bad):
    """Twenty clients in one pass; one record of one of them is replaced."""
    torch.manual_seed(0)
    model, sizes = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), [2] * 20
    x, y = torch.randn(40, 5), torch.randn(40, 3)
    before = clipped_sum(model, square, x, y, clip=1e15, coefficient=PaperClip(1e15, 1e6, -1e15), sizes=sizes).flat
    x[7] = bad
    after = clipped_sum(model, square, x, y, clip=1e15, coefficient=PaperClip(1e15, 1e6, -1e15), sizes=sizes).flat
    others = torch.arange(20) != 3
    assert after.isfinite().all()
    assert torch.equal(before[others], after[others])
    assert not torch.equal(before[3], after[3])
    assert float((before[3] - after[3]).double().norm()) <= 2e15 * ALLOWED  # replaced, not removed


def test_no_person_moves_a_sum_by_more_than_the_bound():
    counts = torch.tensor([1, 3, 2, 2])
    for seed in range(8):
        torch.manual_seed(seed)
        chance = random.Random(seed)
        model, clip = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), chance.choice(BOUNDS)
        x, y = (part.float() for part in records(chance, 8, (5,), 3))
        given = {"clip": clip, "coefficient": coefficients(chance, clip)}
        whole = clipped_by_person(Together(model), square, x, y, counts, **given).flat.double()
        assert whole.isfinite().all()
        of_whom = torch.arange(4).repeat_interleave(counts)
        for person in range(4):
            rest, others = of_whom != person, torch.arange(4) != person
            part = clipped_by_person(Together(model), square, x[rest], y[rest], counts[others], **given).flat
            assert float((whole - part.double()).norm()) <= clip * ALLOWED, (seed, person)


class Leaving(Given):
    """Every record but one is in the batch, and nothing is noised."""

    def __init__(self, out: int | None) -> None:
        super().__init__()
        object.__setattr__(self, "out", out)

    def uniform(self, count, key):
        return np.array([1.0 if j == self.out else 0.0 for j in range(count)])


def released(x: Tensor, y: Tensor, out: int | None, bound: float, clip: float, coefficient: Coefficient):
    federation = Federation.from_clients({"a": (x, y, x, y)}, classes=None)
    privacy = DPSGD(epsilon=None, delta=1e-5, sigma=2.0, q=0.5, clip=1.0, sigma_loss=5.0)
    learner = Learner(nn.Linear(3, 1), squared_error)
    client = LocalClient(federation.clients[0], learner, privacy=privacy, randomness=Leaving(out), round=0)
    (batch,) = client.batches(steps=1, epochs=None, batch_size=1)
    answer = batch.release(
        learner.initial(), coefficient=coefficient, loss=LossQuery(bound, count=True), count_norms=True
    )
    return np.array([answer.loss, answer.losses_within, answer.norms_within]) * client.expected


@pytest.mark.parametrize("bound", [ranges.LOSS_BOUND.low, 2.5, ranges.LOSS_BOUND.high])
def test_no_record_moves_the_loss_or_a_count_by_more_than_its_bound(bound):
    for seed in range(8):
        torch.manual_seed(seed)
        chance = random.Random(seed)
        clip = chance.choice(BOUNDS)
        x, y = (part.float().nan_to_num() for part in records(chance, BATCH, (3,), 1))  # a federation has no NaN
        given = (bound, clip, coefficients(chance, clip))
        torch.manual_seed(seed)
        whole = released(x, y, None, *given)
        assert np.isfinite(whole).all()
        for j in range(BATCH):
            torch.manual_seed(seed)
            moved = np.abs(whole - released(x, y, j, *given))
            assert moved[0] <= bound * (1 + 1e-12)
            assert (moved[1:] <= 1 + 1e-12).all()


def test_a_loss_bound_out_of_range_is_refused_before_a_record_is_read():
    for bound in (0.0, 1e-300, 1e13, math.inf, math.nan):
        with pytest.raises(SettingError, match=r"loss.bound = .*: a bound on a record's loss from 1e-12 to 1e"):
            released(torch.randn(2, 3), torch.randn(2, 1), None, bound, 1.0, PlainClip(1.0))


def test_the_largest_sum_is_far_from_overflow():
    """2³¹ records of the largest bound and the largest noise, divided by the smallest expected batch."""
    largest = torch.finfo(torch.float32).max
    total = 2.0**31 * ranges.BOUND.high
    noise = 10 * ranges.NOISE.high * ranges.BOUND.high
    assert (total + noise) / ranges.SAMPLING.low < largest / 1e3
    # Within a product c·g ⊗ a: c·‖g‖ ≤ C/‖a‖, and no ‖a‖ is taken for less than this; √unit of a wide layer besides.
    least = float(row_norms(torch.zeros(1, 1)))
    assert ranges.BOUND.high / least / math.sqrt(4 * torch.finfo(torch.float32).eps) < largest / 1e3
