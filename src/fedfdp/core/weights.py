"""Weights, which are dicts of tensors by parameter name, and arithmetic on them. Only what ends in _ changes an input.

Where the tensors are views of one vector (`Flat`), an operation on all of them is one on the vector. The numbers are
the same to the last bit: every operation here treats each weight by itself.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

Weights = dict[str, Tensor]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Flat(Weights):
    """Weights that lie one after the other in one vector, cut into tensors when they are first asked for by name.

    Which tensor has which name cannot be changed.
    """

    def __init__(self, vector: Tensor, shapes: Shapes) -> None:
        super().__init__()
        self.vector, self.shapes = vector, shapes

    def like(self, vector: Tensor) -> "Flat":
        return Flat(vector, self.shapes)

    def _cut(self) -> Weights:
        if not super().__len__():
            parts = torch.split(self.vector, [math.prod(shape) for _, shape in self.shapes])
            named = zip(self.shapes, parts, strict=True)
            super().update((name, part.view(shape)) for (name, shape), part in named)
        return super()  # type: ignore[return-value]

    def __missing__(self, name: str) -> Tensor:
        if super().__len__():
            raise KeyError(name)
        return self._cut().__getitem__(name)

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[str]:
        return self._cut().__iter__()

    def __contains__(self, name: object) -> bool:
        return self._cut().__contains__(name)

    def __eq__(self, other: object) -> bool:
        return self._cut().__eq__(other)

    def __repr__(self) -> str:
        return self._cut().__repr__()

    def get(self, name: str, default: Any = None) -> Any:
        return self._cut().get(name, default)

    def keys(self) -> Any:
        return self._cut().keys()

    def values(self) -> Any:
        return self._cut().values()

    def items(self) -> Any:
        return self._cut().items()

    def copy(self) -> Weights:
        return self._cut().copy()

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def _fixed(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("these weights share one vector: make a dict of them before changing what a name stands for")

    __setitem__ = __delitem__ = update = pop = popitem = setdefault = clear = __ior__ = _fixed

    def __reduce__(self) -> tuple[Any, ...]:
        return Flat, (self.vector.clone(), self.shapes)  # not with the other rows of a matrix that it may be one of


def flat(weights: Mapping[str, Tensor]) -> Weights:
    """A copy in one vector, or tensor by tensor where they differ in type or device."""
    tensors = list(weights.values())
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
        return {name: tensor.clone() for name, tensor in weights.items()}
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in weights.items())
    return Flat(torch.cat([tensor.reshape(-1) for tensor in tensors]), shapes)


def zeros_like(weights: Weights) -> Weights:
    if isinstance(weights, Flat):
        return weights.like(torch.zeros_like(weights.vector))
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def clone(weights: Weights) -> Weights:
    if isinstance(weights, Flat):
        return weights.like(weights.vector.clone())
    return {name: tensor.clone() for name, tensor in weights.items()}


def add(left: Weights, right: Weights, scale: float = 1.0) -> Weights:
    """left + scale·right"""
    if both := _alike(left, right):
        return both[0].like(torch.add(both[0].vector, both[1].vector, alpha=scale))
    return {name: torch.add(tensor, right[name], alpha=scale) for name, tensor in left.items()}


def subtract(left: Weights, right: Weights) -> Weights:
    if both := _alike(left, right):
        return both[0].like(both[0].vector - both[1].vector)
    return {name: tensor - right[name] for name, tensor in left.items()}


def multiply(weights: Weights, factor: float) -> Weights:
    if isinstance(weights, Flat):
        return weights.like(weights.vector * factor)
    return {name: tensor * factor for name, tensor in weights.items()}


def multiply_(weights: Weights, factor: float) -> Weights:
    """The same for weights that are not needed as they were: in place where they are one vector.

    Separate tensors may share their memory, as gradients do of two parameters that are only ever added.
    """
    if not isinstance(weights, Flat):
        return multiply(weights, factor)
    weights.vector.mul_(factor)
    return weights


def add_(total: Weights, other: Weights, scale: float = 1.0) -> None:
    """total ← total + scale·other, in place: how a sum over clients is kept without keeping the clients."""
    if both := _alike(total, other):
        both[0].vector.add_(both[1].vector, alpha=scale)
        return
    for name, tensor in total.items():
        tensor.add_(other[name], alpha=scale)


def squared_norm(weights: Weights) -> float:
    return float(sum(torch.linalg.vector_norm(t, dtype=torch.float64) ** 2 for t in weights.values()))


def size(weights: Weights) -> int:
    """d, the number of weights."""
    return sum(tensor.numel() for tensor in weights.values())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _alike(left: Weights, right: Weights) -> tuple[Flat, Flat] | None:
    """Both, where each is one vector and they are cut in the same way."""
    if not isinstance(left, Flat) or not isinstance(right, Flat):
        return None
    return (left, right) if left.shapes == right.shapes and left.vector.dtype == right.vector.dtype else None
