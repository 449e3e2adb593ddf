"""Functions with a backward pass of their own: taken as their calls where that gives the same gradients, else alone."""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.inlined import inlined
from per_record import CLASSES, assert_parity, by_autograd, cross_entropy


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class WithSetup(Function):
    @staticmethod
    def forward(x, power=2):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad, None


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class LimitsGradients(Function):
    """The gradient of its forward pass, unless that is large: small numbers do not tell them apart."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-100, 100)


class SaysWhatIsWhole(Function):
    @staticmethod
    def forward(ctx, x):
        whole = x > 0
        ctx.mark_non_differentiable(whole)
        return x * 1, whole

    @staticmethod
    def backward(ctx, grad, _):
        return grad


class MixesMany(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 20 * x.flip(0) if len(x) > 5 else x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad


class Net(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.one, self.two, self.function = nn.Linear(4, 6), nn.Linear(6, CLASSES), function

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.function(self.one(x)))


@pytest.mark.parametrize("kind", [Cube, WithSetup])
def test_one_whose_gradients_are_its_derivative_takes_the_rules(kind):
    assert_parity(Net(lambda x: kind.apply(x)), torch.randn(5, 4), "rules", by_autograd)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: StraightThrough.apply(x),
        lambda x: LimitsGradients.apply(x),
        lambda x: SaysWhatIsWhole.apply(x)[0],
        Cube.apply,  # bound before: it is not reached, and its node in the graph is refused
    ],
)
def test_any_other_is_differentiated_by_its_own_backward_pass(function):
    assert_parity(Net(function), torch.randn(5, 4), "loop", by_autograd)


def test_a_forward_pass_that_mixes_larger_batches_is_watched_as_any_other():
    torch.manual_seed(0)
    model, x, y = Net(lambda x: MixesMany.apply(x)), torch.randn(9, 4), torch.arange(9) % CLASSES

    def total(rows: list[int]) -> Tensor:
        return clipped_sum(model, cross_entropy, x[rows], y[rows], clip=0.5).flat

    whole = total(list(range(9)))
    for who in range(9):
        rest = [i for i in range(9) if i != who]
        assert float((whole - total(rest)).norm()) <= 0.5 * (1 + 1e-4)


def test_other_threads_and_later_passes_have_the_function_as_it_is():
    seen = []

    def gradient() -> None:
        x = torch.tensor([0.4], requires_grad=True)
        StraightThrough.apply(x).backward()
        seen.append(float(x.grad))

    with inlined([]):
        gradient()
        with inlined([]):
            pass
        gradient()
        other = threading.Thread(target=gradient)
        other.start()
        other.join()
    gradient()
    assert seen == [0, 0, 1, 1]
