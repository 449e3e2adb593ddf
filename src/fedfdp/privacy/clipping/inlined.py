"""Functions with a backward pass of their own (torch.autograd.Function), taken as the calls that their forward makes.

Their own backward pass is never run here: nothing watches it. Autograd differentiates the calls of the forward pass
instead, all of them torch's own and proven as any other. A function whose own gradients are others than these, such as
a straight-through estimator, is not taken: its model is processed record by record.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedfdp.privacy.clipping.agreement import AGREE
from fedfdp.privacy.clipping.layers.through_time import OWN_BACKWARD
from fedfdp.privacy.clipping.proof.calls import UnsupportedError, tensors_in

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

INPUTS, GRADIENTS = (0.03, 1.0, 30.0), (1e-3, 1.0, 1e3)  # sizes at which the two backward passes are compared

_as_it_is = vars(Function)["apply"]
_here = threading.local()  # .trials: whether functions are inlined in this thread, and tried first
_lock, _users = threading.Lock(), 0


class _Context:
    """Stands in for what a forward pass keeps for its backward pass, which does not come."""

    def __init__(self, args: Args) -> None:
        self.needs_input_grad = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        pass

    save_for_forward = mark_dirty = save_for_backward

    def set_materialize_grads(self, value: bool) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        raise UnsupportedError("a function with a backward pass of its own says what is not differentiated")


@contextmanager
def inlined(*, trials: bool) -> Iterator[None]:
    """Within it, in this thread, such functions are the calls of their forward pass. With `trials` each is tried first.

    Those that were bound before (`f = Own.apply` in a module) are not reached: the pass is refused, as its graph shows.
    """
    global _users
    with _lock:
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
                Function.apply = _as_it_is  # type: ignore[method-assign]


def _apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    trials = getattr(_here, "trials", None)
    if trials is None or cls._backward_cls in OWN_BACKWARD:
        return _as_it_is.__get__(None, cls)(*args, **kwargs)
    if trials:
        _require_same_gradients(cls, args, kwargs)
    return _forward(cls, args, kwargs)


def _forward(cls: type[Function], args: Args, kwargs: Kwargs) -> Any:
    if cls.setup_context is not Function.setup_context:
        return cls.forward(*args, **kwargs)
    return cls.forward(_Context(args), *args, **kwargs)


def _require_same_gradients(cls: type[Function], args: Args, kwargs: Kwargs) -> None:
    """Raises unless autograd gives the function's own gradients, on random numbers of several sizes.

    A slip costs accuracy, not privacy: the gradients that are clipped are those of the calls, whatever this finds.
    """
    generator = torch.Generator().manual_seed(0)
    own, derived = _as_it_is.__get__(None, cls), lambda *given: _forward(cls, given, kwargs)
    with torch._C.DisableTorchFunction(), torch.enable_grad():
        for size, grad_size in itertools.product(INPUTS, GRADIENTS):
            given = [_random(a, size, generator) if isinstance(a, Tensor) else a for a in args]
            state = generator.get_state()
            one = _gradients(lambda *moved: own(*moved, **kwargs), given, grad_size, generator)
            generator.set_state(state)
            if not _alike(one, _gradients(derived, given, grad_size, generator)):
                raise UnsupportedError(f"{cls.__name__} has a backward pass of its own, which is not its derivative")


def _random(like: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Random numbers in its place; whole numbers as they are."""
    if not like.is_floating_point():
        return like
    numbers = torch.randn(like.shape, generator=generator).mul_(size).to(like.device, like.dtype)
    return numbers.requires_grad_(like.requires_grad)


def _gradients(
    function: Callable[..., Any], given: list[Any], size: float, generator: torch.Generator
) -> tuple[Tensor | None, ...]:
    """By all that is differentiated, from random gradients at the results."""
    leaves = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
    moved = [a.clone() if isinstance(a, Tensor) else a for a in given]  # a function may write to what it is given
    outputs = [t for t in tensors_in(function(*moved)) if t.requires_grad]
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
