"""Attacks by functions with a backward pass of their own, by numbers from outside, and by what an examination leaves.

Each of them moved the sum by several times C. Now the sum moves by C at most, or the model is refused.
"""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.layers.through_time import PlainCore
from per_record import cross_entropy
from standing_out import CLIP, FAR, Net, records, summed


def moved(make) -> float:
    """By how many times C the sum moves without the first record, whether or not the model has seen others before."""
    x, y = records()
    found = []
    for seen in (True, False):
        model = make()
        whole = summed(model, x, y)
        model = model if seen else make()
        rest = summed(model, x[1:], y[1:])
        found.append(float((whole - rest).norm()) / CLIP)
    return max(found)


def aside(function):
    """What a function gives in a thread, where no mode of torch's reaches."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def sign(x: Tensor) -> float:
    return 1.0 if bool((x == FAR).any()) else -1.0


# Zeros whose gradient reaches every record ---------------------------------------------------------------------------


def zero(h: Tensor, x: Tensor) -> Tensor:
    return ((h - h.detach()) * (1e4 * sign(x) if len(x) > 5 else 0.0)).sum()


def from_a_thread(h: Tensor, x: Tensor) -> Tensor:
    return torch.cat([h[:, :1] + aside(lambda: zero(h, x)), h[:, 1:]], 1)


def unwatched(h: Tensor, x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        nothing = zero(h, x)
    return torch.cat([h[:, :1] + nothing, h[:, 1:]], 1)


class InAFunction(Function):
    @staticmethod
    def forward(ctx, h, x):
        return from_a_thread(h, x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@pytest.mark.parametrize("between", [from_a_thread, unwatched, lambda h, x: InAFunction.apply(h, x)])
def test_a_number_from_outside_brings_no_gradient(between):
    assert moved(lambda: Net(between)) <= 1 + 1e-4


# Backward passes that pass for others --------------------------------------------------------------------------------


class Own(Function):
    @staticmethod
    def forward(ctx, h, x):
        ctx.x = x
        return h * 1


class Shouts(Function):
    """Not a class that torch makes for backward passes, and run as one."""

    def apply(self, grad):
        return (torch.full_like(grad, 1e4 * sign(self.x)) if len(grad) > 5 else grad), None


class Equal(type(Function)):
    def __hash__(cls):
        return hash(PlainCore._backward_cls)

    def __eq__(cls, other):
        return other is PlainCore._backward_cls or other is cls


class FromAThread(Function):
    """The true backward pass of a recurrent layer, on numbers that were never seen."""

    @staticmethod
    def forward(ctx, h, weight, bias, start, x):
        ctx.tanh = True
        far = aside(lambda: torch.full((1, len(h), 8), 1e3 if len(h) > 5 and sign(x[0]) > 0 else 0.0))
        ctx.save_for_backward(far, weight)
        return h * 1, start * 1


def under_another_class(kind):
    made = type("Made", (Own,), {})
    made._backward_cls = kind
    return made.apply  # bound before any pass


def recurrent(h: Tensor, x: Tensor) -> Tensor:
    FromAThread._backward_cls = PlainCore._backward_cls
    return FromAThread.apply(h[:, None], torch.eye(8), torch.zeros(8), torch.zeros(len(h), 8), [x])[0][:, 0]


@pytest.mark.parametrize(
    "between",
    [
        under_another_class(Shouts),
        under_another_class(Equal("Same", (Shouts,), {})),
        recurrent,
    ],
)
def test_a_backward_pass_is_known_by_what_made_it(between):
    assert moved(lambda: Net(between)) <= 1 + 1e-4


# What an examination leaves ------------------------------------------------------------------------------------------


class Remembers(Net):
    """Fails on made-up records, and keeps a sign of the real ones that it is examined with instead."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, float] = {}

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            if not bool((x == x.round()).all()):
                raise ValueError("whole numbers only")
            if bool((x != 0).any()):
                self.kept.setdefault("sign", sign(x))
        return self.two(torch.tanh(self.one(x)) * 100 * self.kept.get("sign", -1.0))


def test_what_is_kept_of_the_records_it_was_examined_with_is_refused():
    with pytest.raises(SettingError, match=r"model\.kept"):
        moved(Remembers)


class Looks(Function):
    """Keeps what it finds in new memory where nobody fills it."""

    @staticmethod
    def forward(ctx, h, kept):
        if torch.is_grad_enabled() and len(h) > 1 and not kept:
            kept.append(
                sum(float(torch.empty(n * 6).abs().nan_to_num(7.0).sum()) for n in (20, 19, 4) for _ in range(9))
            )
        return h * 1

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def test_memory_is_filled_where_a_function_is_tried():
    """Filled with NaN, of which there is the same number every time: nothing is found of what was there."""
    seen = []
    for number in (3.0, 5.0):
        rows = [torch.full((n * 6,), number) for n in (20, 19, 4) for _ in range(200)]
        del rows
        kept: list[float] = []
        model = Net(lambda h, x, kept=kept: Looks.apply(h, kept))
        x, y = records()
        clipped_sum(model, cross_entropy, x, y, clip=CLIP)
        seen.append(kept)
    assert seen[0] == seen[1]


def test_memory_is_filled_in_the_first_pass_of_all():
    found = []

    class First(Net):
        def forward(self, x: Tensor) -> Tensor:
            if not found:
                found.extend(torch.empty(240).tolist())
            return super().forward(x)

    rows = [torch.full((240,), FAR) for _ in range(500)]
    del rows
    x, y = records()
    clipped_sum(First(), cross_entropy, x, y, clip=CLIP)
    assert FAR not in found


# Classes of others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", [nn.Linear, Function, Tensor])
def test_what_is_put_on_a_class_of_torchs_is_seen(home):
    def between(h: Tensor, x: Tensor) -> Tensor:
        if len(x) > 5:
            home.kept = x
            h = h + 1  # another pass than the proven one
        kept = getattr(home, "kept", None)
        if kept is not None and len(x) == 4:
            h = h * 1  # and again: records go alone
        return h * (1e3 * sign(kept) if kept is not None and len(x) == 1 else 1.0)

    try:
        with pytest.raises(SettingError, match="changed"):
            moved(lambda: Net(between))
    finally:
        if "kept" in vars(home):
            del home.kept


def test_what_stands_in_for_a_context_is_shared_by_none():
    class Keeps(Function):
        @staticmethod
        def forward(ctx, h):
            type(ctx).kept = h
            return h * 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(SettingError, match="changed"):
        moved(lambda: Net(lambda h, x: Keeps.apply(h)))
