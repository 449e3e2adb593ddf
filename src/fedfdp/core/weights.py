"""Weights, which are tensors by parameter name, and arithmetic on them. Only what ends in _ changes an input.

The tensors lie one after the other in one vector, and every operation treats each number by itself: it is one operation
on the vector. Wherever weights are read, a dict of tensors is accepted too; what is returned is always `Weights`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # the name and shape of each tensor, in order


class Weights(Mapping[str, Tensor]):
    """Tensors by name, in one vector; in one vector per dtype and device where a model has several.

    The tensors are views of the vectors, so their numbers can be changed. The names cannot.
    """

    def __init__(
        self, shapes: Shapes = (), vectors: tuple[Tensor, ...] = (), homes: tuple[int, ...] | None = None
    ) -> None:
        """`homes` says which of the vectors holds each tensor; without it, the first holds them all."""
        self.shapes, self.vectors = shapes, vectors
        self.homes = (0,) * len(shapes) if homes is None else homes

    @classmethod
    def of(cls, named: Mapping[str, Tensor]) -> "Weights":
        """A copy of these tensors, detached; what is `Weights` already is returned as it is."""
        if isinstance(named, Weights):
            return named
        kinds: dict[tuple[torch.dtype, torch.device], int] = {}
        homes = tuple([kinds.setdefault((tensor.dtype, tensor.device), len(kinds)) for tensor in named.values()])
        shapes = tuple([(name, tuple(tensor.shape)) for name, tensor in named.items()])
        return cls(shapes, _joined(named.values(), homes), homes)

    def arrange(self, named: Mapping[str, Tensor]) -> "Weights":
        """The given tensors in the order and shapes of these weights; a copy only where they lie otherwise.

        A name that these weights do not have is left out; a name that is missing is a KeyError.
        """
        if isinstance(named, Weights) and named.shapes == self.shapes and named.homes == self.homes:
            return named
        found = zip((named[name] for name, _ in self.shapes), self.shapes, strict=True)
        tensors = [tensor if tensor.shape == shape else tensor.expand(shape) for tensor, (_, shape) in found]
        return Weights(self.shapes, _joined(tensors, self.homes), self.homes)

    def typed_as(self, other: Mapping[str, Tensor]) -> "Weights":
        """Each tensor in the dtype that the other weights have under its name; the same object where none differs."""
        theirs = other.vectors if isinstance(other, Weights) else other.values()
        if len(self.vectors) == 1 and all(tensor.dtype == self.vectors[0].dtype for tensor in theirs):
            return self
        return Weights.of({name: tensor.to(other[name].dtype) for name, tensor in self.items()})

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        sizes: list[list[int]] = [[] for _ in self.vectors]
        for (_, shape), home in zip(self.shapes, self.homes, strict=True):
            sizes[home].append(math.prod(shape))
        parts = [iter(vector.split_with_sizes(each)) for vector, each in zip(self.vectors, sizes, strict=True)]
        tensors = {}
        for (name, shape), home in zip(self.shapes, self.homes, strict=True):
            part = next(parts[home])
            tensors[name] = part if len(shape) == 1 else part.view(shape)
        return tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __eq__(self, other: object) -> bool:
        """Whether names, dtypes, devices, shapes and numbers are the same; the order of the names does not count."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(_same(tensor, other[name]) for name, tensor in self.items())

    def __repr__(self) -> str:
        return f"Weights({', '.join(f'{name}: {t.dtype} {tuple(t.shape)}' for name, t in self.items())})"

    def __reduce__(self) -> tuple[Callable[..., "Weights"], tuple[object, ...]]:
        # A vector may be one row of a matrix: its neighbours are not copied with it. As arrays they travel without a
        # copy of their own, many times as fast as tensors do.
        plain = all(v.device.type == "cpu" and v.dtype in (torch.float32, torch.float64) for v in self.vectors)
        if plain and all(v.is_contiguous() for v in self.vectors):
            return _arrived, (self.shapes, tuple(v.detach().numpy() for v in self.vectors), self.homes)
        return Weights, (self.shapes, tuple(vector.clone() for vector in self.vectors), self.homes)


def _arrived(shapes: Shapes, arrays: tuple[NDArray[np.floating], ...], homes: tuple[int, ...]) -> Weights:
    """Weights whose numbers came as arrays; those that lie in memory which must not be written are copied."""
    own = (array if array.flags.writeable else array.copy() for array in arrays)
    return Weights(shapes, tuple(map(torch.from_numpy, own)), homes)


def each(operation: Callable[..., Tensor], first: Mapping[str, Tensor], *others: Mapping[str, Tensor]) -> Weights:
    """The operation on whole vectors; the others are aligned to the first by parameter name.

    It must treat every number by itself, as a sum or a square root does.
    """
    first = Weights.of(first)
    beside = [first.arrange(other).vectors for other in others]
    return Weights(first.shapes, tuple(map(operation, first.vectors, *beside)), first.homes)


def zeros_like(weights: Mapping[str, Tensor]) -> Weights:
    return each(torch.zeros_like, weights)


def clone(weights: Mapping[str, Tensor]) -> Weights:
    return each(torch.clone, weights)


def add(left: Mapping[str, Tensor], right: Mapping[str, Tensor], scale: float = 1.0) -> Weights:
    """left + scale·right"""
    return each(partial(torch.add, alpha=scale), left, right)


def subtract(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Weights:
    return each(torch.sub, left, right)


def multiply(weights: Mapping[str, Tensor], factor: float) -> Weights:
    return each(lambda vector: vector * factor, weights)


def multiply_(weights: Mapping[str, Tensor], factor: float) -> Weights:
    """The same in place, for weights that are not needed as they were; a dict of tensors is left as it is."""
    product = Weights.of(weights)
    for vector in product.vectors:
        vector.mul_(factor)
    return product


def add_(total: Weights, other: Mapping[str, Tensor], scale: float = 1.0) -> None:
    """total ← total + scale·other, in place: how a sum over clients is kept without keeping the clients."""
    if not isinstance(total, Weights):
        raise TypeError("add_ changes weights in place: make them with Weights.of(…) or zeros_like(…), not as a dict")
    for vector, more in zip(total.vectors, total.arrange(other).vectors, strict=True):
        vector.add_(more, alpha=scale)


def assembled(like: Mapping[str, Tensor], *parts: Mapping[str, Tensor]) -> Weights:
    """Weights of the names and shapes of `like`: each from the first part that has it, or else as it is there.

    Where a part's tensor is larger, it is the leading slice of it: the first rows, columns, ….
    """

    def found(name: str, first: Tensor) -> Tensor:
        tensor = next((part[name] for part in parts if name in part), first)
        return tensor if tensor.shape == first.shape else tensor[tuple(slice(size) for size in first.shape)]

    return Weights.of({name: found(name, first) for name, first in like.items()})


def squared_norm(weights: Mapping[str, Tensor]) -> float:
    """Summed tensor by tensor: in another order the last bits of the sum would differ."""
    return float(sum(torch.linalg.vector_norm(t, dtype=torch.float64) ** 2 for t in weights.values()))


def product(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The inner product, in double precision."""
    return sum(float(torch.sum(one[name].double() * other[name].double())) for name in one)


def size(weights: Mapping[str, Tensor]) -> int:
    """d, the number of weights."""
    return sum(tensor.numel() for tensor in weights.values())


def all_finite(weights: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def _joined(tensors: Iterable[Tensor], homes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """One vector for each home, with the numbers of the tensors that belong there, one after the other."""
    parts: list[list[Tensor]] = [[] for _ in set(homes)]
    for tensor, home in zip(tensors, homes, strict=True):
        parts[home].append(tensor.flatten())
    return tuple(torch.cat(part).detach() for part in parts)


def _same(tensor: Tensor, other: object) -> bool:
    if not isinstance(other, Tensor) or (tensor.dtype, tensor.device) != (other.dtype, other.device):
        return False
    return torch.equal(tensor, other)
