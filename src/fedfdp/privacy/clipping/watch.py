"""Watches the operations of a forward pass: notes them once, and compares every later pass with what was noted.

A pass is the same as a noted one if it makes the same calls in the same order, on the same values, with the same
arguments. Sizes may grow with the number of records as they did when it was noted. What enters from outside (tensors
that are neither input, parameter nor buffer) must hold the same numbers. What a call means is decided in rowwise.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Reference(NamedTuple):
    """Which value a tensor is: ("value", number), ("own", a parameter's or buffer's name), ("outside", number)."""

    kind: str
    name: int | str


class UnsupportedError(Exception):
    """A pass that the layer rules do not cover; it is done another way."""


class OtherPassError(UnsupportedError):
    """A pass that makes other calls than the one that was proven."""


class Size(NamedTuple):
    """A whole number that depends on the number of records B: fixed + each·B."""

    fixed: int
    each: int

    def at(self, batch: int) -> int:
        return self.fixed + self.each * batch


@dataclass
class Entry:
    """One call of a noted pass."""

    func: Any
    key: Any  # its arguments: tensors as references, all else by value
    made: tuple[Reference, ...]  # its results
    shapes: tuple[tuple[int, ...], ...]
    args: Any = None
    kwargs: Any = None
    changed: tuple[Reference, ...] = ()  # arguments that the call wrote to


@dataclass
class Step:
    """One call of a proven pass; what grows with the number of records is a Size."""

    func: Any
    key: Any
    shapes: Any
    grows: bool  # whether anything in key or shapes is a Size


@dataclass
class Program:
    """A proven pass: its calls, and the numbers that enter it from outside."""

    steps: list[Step]
    outside: list[Tensor]


def at(pattern: Any, batch: int) -> Any:
    """A key or shape with its sizes filled in."""
    if type(pattern) is tuple:
        return tuple([at(part, batch) for part in pattern])
    return pattern.at(batch) if type(pattern) is Size else pattern


_PLAIN = frozenset({int, float, str, type(None), complex, torch.dtype, torch.device, torch.layout, torch.memory_format})
_MARK = "_fedfdp_value"


class Watcher:
    """What both kinds of looking share: which value a tensor is."""

    def __init__(
        self, own: Mapping[int, tuple[str, Tensor]], trained: Mapping[int, str], inputs: Iterable[Tensor]
    ) -> None:
        self._own, self.trained = own, trained
        self._token = object()  # marks of another pass say nothing in this one
        self._values = 0
        self._outside: dict[int, tuple[Reference, Tensor]] = {}  # the tensor is held so that its id stays its own
        self.used: list[str] = []  # trained parameters among the arguments of the last call
        for tensor in inputs:
            self.mark(tensor)

    def mark(self, tensor: Tensor) -> Reference:
        """A number for a value that is new."""
        reference = Reference("value", self._values)
        self._values += 1
        tensor.__dict__[_MARK] = (self._token, reference)
        return reference

    def same(self, tensor: Tensor, reference: Reference) -> None:
        """The tensor holds a value that has a number already."""
        tensor.__dict__[_MARK] = (self._token, reference)

    def reference(self, tensor: Tensor) -> Reference:
        mark = tensor.__dict__.get(_MARK)
        if mark is not None and mark[0] is self._token:
            return mark[1]  # type: ignore[no-any-return]
        number = id(tensor)
        if number in self._own:
            return Reference("own", self._own[number][0])
        if number not in self._outside:
            self._outside[number] = (Reference("outside", len(self._outside)), tensor)
            self.entered(len(self._outside) - 1, tensor)
        return self._outside[number][0]

    def entered(self, number: int, tensor: Tensor) -> None:
        """A tensor came from outside."""

    def key(self, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """The arguments as something that can be compared."""
        self.used = []
        found = [self._of(value) for value in args]
        if kwargs:
            found.append(tuple([(name, self._of(kwargs[name])) for name in sorted(kwargs)]))
        return tuple(found)

    def _of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, Tensor):
            if id(value) in self.trained:
                self.used.append(self.trained[id(value)])
            return self.reference(value)
        if kind is bool:
            return ("yes",) if value else ("no",)  # True is also 1, and x[True] is not x[1]
        if isinstance(value, (tuple, list)):
            return tuple([self._of(part) for part in value])
        if kind is slice:
            return ("slice", self._of(value.start), self._of(value.stop), self._of(value.step))
        if isinstance(value, dict):
            return tuple([(name, self._of(value[name])) for name in sorted(value, key=str)])
        if isinstance(value, np.generic):
            return value.item()
        if value is Ellipsis:
            return "..."
        if isinstance(value, torch.Generator):
            return "generator"
        if isinstance(value, np.ndarray):
            return ("array", value.shape, value.dtype.str, value.tobytes())
        raise UnsupportedError(f"an argument of type {kind.__name__} is not known")


class Recorder(Watcher):
    """Notes a pass, with its values, so that it can be examined."""

    def __init__(
        self, own: Mapping[int, tuple[str, Tensor]], trained: Mapping[int, str], inputs: Iterable[Tensor]
    ) -> None:
        self.entries: list[Entry] = []
        self.samples: dict[Reference, Tensor] = {}
        self.outside: list[Tensor] = []
        super().__init__(own, trained, inputs)

    def mark(self, tensor: Tensor) -> Reference:
        reference = super().mark(tensor)
        self.samples[reference] = tensor.detach()
        return reference

    def reference(self, tensor: Tensor) -> Reference:
        reference = super().reference(tensor)
        self.samples.setdefault(reference, tensor.detach())
        return reference

    def entered(self, number: int, tensor: Tensor) -> None:
        self.outside.append(tensor.detach().clone())

    def before(self, args: Any, kwargs: Any) -> list[tuple[Tensor, int]]:
        """The arguments' versions, by which the call's writing is seen."""
        return [(tensor, tensor._version) for tensor in tensors_in((args, kwargs)) if not tensor.is_inference()]

    def note(
        self, func: Any, key: Any, result: Any, args: Any, kwargs: Any, versions: list[tuple[Tensor, int]]
    ) -> None:
        changed = tuple([self.reference(tensor) for tensor, version in versions if tensor._version != version])
        made, shapes = [], []
        for tensor in tensors_in(result):
            known = tensor.__dict__.get(_MARK)
            if known is not None and known[0] is self._token:
                made.append(known[1])  # an argument that was changed in place, or handed back
            elif id(tensor) in self._own or id(tensor) in self._outside:
                made.append(self.reference(tensor))
            else:
                made.append(self.mark(tensor))
            shapes.append(tuple(tensor.shape))
        self.entries.append(Entry(func, key, tuple(made), tuple(shapes), args, kwargs, changed))


class Follower(Watcher):
    """Compares a pass with a proven one, call by call, and ends it where they differ."""

    def __init__(
        self,
        own: Mapping[int, tuple[str, Tensor]],
        trained: Mapping[int, str],
        inputs: Iterable[Tensor],
        program: Program,
        batch: int,
    ) -> None:
        self._steps, self._next, self._batch, self._constants = program.steps, 0, batch, program.outside
        super().__init__(own, trained, inputs)

    def entered(self, number: int, tensor: Tensor) -> None:
        if number >= len(self._constants):
            raise OtherPassError("another tensor from outside enters")
        right = self._constants[number]
        if tensor.shape != right.shape or tensor.dtype != right.dtype or not _equal(tensor.detach(), right):
            raise OtherPassError("a tensor from outside holds other numbers than before")

    def before(self, args: Any, kwargs: Any) -> list[tuple[Tensor, int]]:
        return []

    def note(
        self, func: Any, key: Any, result: Any, args: Any, kwargs: Any, versions: list[tuple[Tensor, int]]
    ) -> None:
        if self._next >= len(self._steps):
            raise OtherPassError(f"{name_of(func)} is called beyond what was examined")
        step = self._steps[self._next]
        self._next += 1
        right, shapes = step.key, step.shapes
        if step.grows:
            right, shapes = at(right, self._batch), at(shapes, self._batch)
        if step.func != func or right != key:
            raise OtherPassError(f"{name_of(func)} is called otherwise than when it was examined")
        tensors = [result] if isinstance(result, Tensor) else list(tensors_in(result))
        if len(tensors) != len(shapes):
            raise OtherPassError(f"{name_of(func)} gives another number of results")
        for tensor, shape in zip(tensors, shapes, strict=True):
            if tensor.shape != shape:
                raise OtherPassError(f"{name_of(func)} gives another shape than expected")
            known = tensor.__dict__.get(_MARK)
            if (known is None or known[0] is not self._token) and not (
                id(tensor) in self._own or id(tensor) in self._outside
            ):
                self.mark(tensor)

    def ended(self) -> None:
        if self._next != len(self._steps):
            raise OtherPassError("the pass ends earlier than when it was examined")


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif type(value) is slice:
        yield from tensors_in((value.start, value.stop, value.step))


@cache
def name_of(func: Any) -> str:
    """The name of a function of torch's; of a property its own name, or that name with `=` where it is set."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return str(getattr(func.__self__, "__name__", "")) + ("" if name == "__get__" else "=")
    home = str(getattr(func, "__module__", None) or "torch")
    own = home.startswith("torch._ops.aten") if home.startswith("torch._ops") else home.partition(".")[0] == "torch"
    return name if own or home == "builtins" else f"{home}.{name}"
