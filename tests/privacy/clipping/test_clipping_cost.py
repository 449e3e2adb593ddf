"""What a private step may cost, counted rather than timed: passes, large allocations, work per record in Python."""

import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from fedfdp.native.allocator import tune_allocator
from fedfdp.privacy.clipping import clipped_sum


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def paper_cnn() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


class Operations(TorchDispatchMode):
    """Counts the operations that run, by name, and the numbers in new tensors larger than a megabyte."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.large: list[int] = []
        self.gradients_of: list[list[bool]] = []  # input, weight and bias of each convolution's backward pass

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        if self.names[-1] == "convolution_backward":
            self.gradients_of.append(args[-1])
        inputs = {
            a.untyped_storage().data_ptr()
            for a in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(a, Tensor)
        }
        for out in torch.utils._pytree.tree_leaves(result):
            if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in inputs:
                size = out.untyped_storage().nbytes()
                if size > 2**20:
                    self.large.append(size)
        return result


def counted(model: nn.Module, x: Tensor, y: Tensor, **options: object) -> Operations:
    clipped_sum(model, cross_entropy, x, y, clip=0.1, **options)  # the first use examines the model
    operations = Operations()
    with operations:
        clipped_sum(model, cross_entropy, x, y, clip=0.1, **options)
    return operations


def digits(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,))


def test_one_forward_and_one_backward_pass_a_step():
    operations = counted(paper_cnn(), *digits(40))
    names = operations.names
    assert names.count("convolution") == 2
    assert names.count("addmm") == 2
    assert names.count("max_pool2d_with_indices") == 2
    # The first convolution needs no input gradient, and no weight gradient is left to autograd.
    assert operations.gradients_of == [[True, False, False]]
    # Two products for the linear layers' input gradients, two for the sums over records.
    assert names.count("mm") == 4
    assert names.count("max_pool2d_with_indices_backward") == 2


def test_no_work_per_record_in_python():
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    assert counted(mlp, *digits(40)).names == counted(mlp, *digits(400)).names
    # Patches are copied for as many records as fill a cache: about seventy and twenty for the two convolutions.
    assert counted(paper_cnn(), *digits(400)).names.count("bmm") <= 400 / 70 + 400 / 20 + 2


def test_no_work_per_group_in_python():
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    few, many = (counted(mlp, *digits(3 * groups), sizes=[3] * groups).names for groups in (20, 200))
    assert few == many


def test_large_allocations_of_a_step_are_few_and_bounded():
    model, (x, y) = paper_cnn(), digits(200)
    operations = counted(model, x, y)
    losses = cross_entropy(model(x), y)
    plain = Operations()
    with plain:
        losses = cross_entropy(model(x), y)
        losses.sum().backward()
    stored = 4 * 200 * (32 * 25 + 64 * 32 * 25)  # per-sample gradients of the two convolutions, once
    assert sum(operations.large) < sum(plain.large) + 1.2 * stored
    assert len(operations.large) <= len(plain.large) + 8


def test_a_chunk_bounds_what_is_held():
    whole, parts = counted(paper_cnn(), *digits(128)), counted(paper_cnn(), *digits(128), chunk=32)
    assert max(parts.large) <= max(whole.large) / 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_the_allocator_is_set_once():
    assert tune_allocator() is tune_allocator() is True
