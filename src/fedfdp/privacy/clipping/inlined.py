"""Functions with a backward pass of their own (torch.autograd.Function), taken as the calls that their forward makes.

Their own backward pass is never run here: nothing watches it. Autograd differentiates the calls of the forward pass
instead, all of them torch's own and proven as any other. A function whose own gradients are others than these, such as
a straight-through estimator, is not taken: its model is processed record by record.
"""

import itertools
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import Node

from fedfdp.privacy.clipping.agreement import AGREE
from fedfdp.privacy.clipping.layers.through_time import CORES
from fedfdp.privacy.clipping.one_by_one import Clean
from fedfdp.privacy.clipping.proof.calls import UnsupportedError, tensors_in

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

INPUTS, GRADIENTS = (0.0, 0.03, 1.0, 30.0), (1e-3, 1.0, 1e3)  # sizes at which the two backward passes are compared

_here = threading.local()  # .trials: see `inlined`; none where functions are as they are
_lock, _users = threading.Lock(), 0
_apply_itself: Any = vars(Function)["apply"]  # as it was before this module's took its place


class Given(NamedTuple):
    """A tensor that a function was given, and what it was then: the function may write to it."""

    tensor: Tensor
    shape: torch.Size
    differentiated: bool


def has_own_backward(node: Node) -> bool:
    """Whether what it computes is written in Python: whatever class the model has it be of."""
    return issubclass(type(node), torch._C._FunctionBase)


def _context(args: Args) -> types.SimpleNamespace:
    """Stands in for what a forward pass keeps for its backward pass, which does not come. Nothing of it is shared."""

    def refuse(*tensors: Tensor) -> None:
        raise UnsupportedError("a function with a backward pass of its own says what is not differentiated")

    ignored = ("save_for_backward", "save_for_forward", "mark_dirty", "set_materialize_grads")
    return types.SimpleNamespace(
        needs_input_grad=tuple([isinstance(a, Tensor) and a.requires_grad for a in args]),
        mark_non_differentiable=refuse,
        **{name: lambda *given: None for name in ignored},
    )


@contextmanager
def inlined(trials: list[Callable[[], None]]) -> Iterator[None]:
    """Within it, in this thread, such functions are the calls of their forward pass.

    `trials` gets a function for each call, which raises UnsupportedError if its own gradients are others. Those that
    were bound before (`f = Own.apply` in a module) are not reached: the pass is refused, as its graph shows.
    """
    global _users, _apply_itself
    with _lock:
        if not _users:
            _apply_itself = vars(Function)["apply"]
        _users += 1
        Function.apply = classmethod(_apply)  # type: ignore[assignment, method-assign]
    before, _here.trials = getattr(_here, "trials", None), trials
    try:
        yield
    finally:
        _here.trials = before
        with _lock:
            _users -= 1
            if not _users:
                Function.apply = _apply_itself  # type: ignore[method-assign]


def _apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    trials: list[Callable[[], None]] | None = getattr(_here, "trials", None)
    if trials is None or any(cls is core for core in CORES):
        return _apply_itself.__get__(None, cls)(*args, **kwargs)
    given = [Given(a, a.shape, a.requires_grad) if isinstance(a, Tensor) else a for a in args]
    trials.append(lambda: _require_same_gradients(cls, given, kwargs))
    return _forward(cls, args, kwargs)


def _forward(cls: type[Function], args: Args, kwargs: Kwargs) -> Any:
    if cls.setup_context is not Function.setup_context:
        return cls.forward(*args, **kwargs)
    return cls.forward(_context(args), *args, **kwargs)


def _require_same_gradients(cls: type[Function], args: list[Any], kwargs: Kwargs) -> None:
    """Raises unless autograd gives the function's own gradients, on random numbers of several sizes, and on zeros.

    A slip costs accuracy, not privacy: the gradients that are clipped are those of the calls, whatever this finds.
    """
    generator = torch.Generator().manual_seed(0)
    own, derived = _apply_itself.__get__(None, cls), lambda *given, **more: _forward(cls, given, more)
    with Clean(), torch.enable_grad():
        for size, grad_size in itertools.product(INPUTS, GRADIENTS):
            given = [_random(a, size, generator) if type(a) is Given else a for a in args]
            state, found = generator.get_state(), []
            for way in (own, derived):
                generator.set_state(state)
                found.append(_gradients(way, given, kwargs, grad_size, generator))
            if not _alike(*found):
                raise UnsupportedError(f"{cls.__name__} has a backward pass of its own, which is not its derivative")


def _random(given: Given, size: float, generator: torch.Generator) -> Tensor:
    """Random numbers in its place, a third of them and the first row 0; whole numbers as they are."""
    if not given.tensor.is_floating_point():
        return given.tensor.detach().clone()
    numbers = torch.randn(given.shape, generator=generator).mul_(size)
    numbers.view(-1)[::3] = 0
    if numbers.dim():
        numbers[:1] = 0
    return numbers.to(given.tensor).requires_grad_(given.differentiated)


def _gradients(
    function: Callable[..., Any], given: list[Any], kwargs: Kwargs, size: float, generator: torch.Generator
) -> tuple[Tensor | None, ...]:
    """By all that is differentiated, from random gradients at the results."""
    leaves = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
    moved = [a.clone() if isinstance(a, Tensor) else a for a in given]  # a function may write to what it is given
    outputs = [t for t in tensors_in(function(*moved, **kwargs)) if t.requires_grad]
    grads = [torch.randn(t.shape, generator=generator).mul_(size).to(t.device, t.dtype) for t in outputs]
    return torch.autograd.grad(outputs, leaves, grads, allow_unused=True) if outputs else ()


def _alike(own: tuple[Tensor | None, ...], derived: tuple[Tensor | None, ...]) -> bool:
    """Whether gradients are the same but for rounding; one that is missing is the same as zeros."""
    if len(own) != len(derived):
        return False
    for pair in zip(own, derived, strict=True):
        present = [grad.detach().double() for grad in pair if grad is not None]
        if not present:
            continue
        one, other = present if len(present) == 2 else (present[0], torch.zeros_like(present[0]))
        if not torch.equal(one.isfinite(), other.isfinite()):
            return False
        one, other = (grad.where(grad.isfinite(), 0) for grad in (one, other))
        if not torch.linalg.vector_norm(one - other) <= AGREE * torch.linalg.vector_norm(other):
            return False
    return True
