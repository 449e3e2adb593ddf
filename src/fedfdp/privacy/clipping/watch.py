"""Watches the operations of a forward pass: notes them once, and compares every later pass with what was noted.

A pass is the same as a noted one if it makes the same calls in the same order, on the same values, with the same
arguments. Sizes may grow with the number of records as they did when it was noted. What enters from outside (tensors
that are neither input, parameter nor buffer) must hold the same numbers. What a call means is decided in rowwise.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
    shared: bool  # whether the first result lies in the first argument's memory
    args: Any
    kwargs: Any
    changed: tuple[Reference, ...]  # arguments that the call writes to


class Step(NamedTuple):
    """One call of a proven pass."""

    func: Any
    key: Any
    shapes: Any
    shared: bool | None  # whether the result is a view of the first argument; None where nothing writes to either


@dataclass
class Program:
    """A proven pass: its calls, with a Size for what grows with the records, and the numbers from outside."""

    steps: list[Step]
    outside: list[Tensor]
    _filled: dict[int, list[Step]] = field(default_factory=dict)

    def at(self, batch: int) -> list[Step]:
        """The calls for this many records; kept for the sizes that batches usually have."""
        found = self._filled.get(batch)
        if found is None:
            if len(self._filled) >= SIZES_KEPT:
                self._filled.clear()
            steps = self.steps
            found = self._filled[batch] = [
                Step(step.func, at(step.key, batch), at(step.shapes, batch), step.shared) for step in steps
            ]
        return found


def at(pattern: Any, batch: int) -> Any:
    """A key or shape with its sizes filled in."""
    if type(pattern) is tuple:
        return tuple([at(part, batch) for part in pattern])
    return pattern.at(batch) if type(pattern) is Size else pattern


SIZES_KEPT = 256
_PLAIN = frozenset({int, float, str, type(None), complex, torch.dtype, torch.device, torch.layout, torch.memory_format})
_MARK = "_fedfdp_value"


class Watcher:
    """What both kinds of looking share: which value a tensor is, and whether all writing to it was seen."""

    def __init__(
        self, own: Mapping[int, tuple[str, Tensor]], trained: Mapping[int, str], inputs: Iterable[Tensor]
    ) -> None:
        self._own, self.trained = own, trained
        self._token = object()  # marks of another pass say nothing in this one
        self._values = 0
        self._outside: dict[int, tuple[Reference, Tensor]] = {}  # the tensor is held so that its id stays its own
        self._versions = {number: tensor._version for number, (_, tensor) in own.items()}
        self._written: dict[int, int] = {}  # by memory: the version that the calls seen so far have left
        self.used: list[str] = []  # trained parameters among the arguments of the last call
        self.given: list[tuple[Tensor, int]] = []  # its tensors, with their versions before it
        for tensor in inputs:
            self.mark(tensor)

    def mark(self, tensor: Tensor) -> Reference:
        """A number for a value that is new."""
        reference = Reference("value", self._values)
        self._values += 1
        self.same(tensor, reference)
        return reference

    def same(self, tensor: Tensor, reference: Reference) -> None:
        """The tensor holds the value of this number. Its own id is in the mark: some classes hand theirs on."""
        if tensor.is_inference():
            raise UnsupportedError("writing to tensors of inference mode is not seen")
        tensor.__dict__[_MARK] = (self._token, reference, id(tensor), tensor._version)

    def known(self, tensor: Tensor) -> Reference | None:
        """Which value it is, if that was said of it in this pass."""
        mark = tensor.__dict__.get(_MARK)
        if mark is None or mark[0] is not self._token or mark[2] != id(tensor):
            return None
        if mark[3] != tensor._version:
            self._explain(tensor)
            self.same(tensor, mark[1])
        return mark[1]  # type: ignore[no-any-return]

    def reference(self, tensor: Tensor) -> Reference:
        known = self.known(tensor)
        if known is not None:
            return known
        number = id(tensor)
        if number not in self._own and number not in self._outside:
            if tensor.is_inference():
                raise UnsupportedError("writing to tensors of inference mode is not seen")
            self._outside[number] = (Reference("outside", len(self._outside)), tensor)
            self._versions[number] = tensor._version
            self.entered(len(self._outside) - 1, tensor)
        if tensor._version != self._versions[number]:
            self._explain(tensor)
            self._versions[number] = tensor._version
        return Reference("own", self._own[number][0]) if number in self._own else self._outside[number][0]

    def _explain(self, tensor: Tensor) -> None:
        """Raises unless the last call that wrote to the tensor's memory was one of those seen."""
        if self._written.get(tensor.untyped_storage().data_ptr()) != tensor._version:
            raise UnsupportedError("a tensor is written to where it is not seen")

    def entered(self, number: int, tensor: Tensor) -> None:
        """A tensor came from outside."""

    def key(self, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """The arguments as something that can be compared."""
        self.used, self.given = [], []
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
            reference = self.reference(value)
            self.given.append((value, value._version))
            return reference
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

    def written(self) -> list[Tensor]:
        """The tensors that the call has written to; from now on that explains their version."""
        found = [tensor for tensor, version in self.given if tensor._version != version]
        for tensor in found:
            self._written[tensor.untyped_storage().data_ptr()] = tensor._version
        return found

    def numbered(self, result: Any) -> list[tuple[Reference, Tensor]]:
        """The tensors of a result; those that are no argument get a number."""
        found = []
        for tensor in [result] if isinstance(result, Tensor) else tensors_in(result):
            reference = self.known(tensor)
            if reference is None:
                mine = id(tensor) in self._own or id(tensor) in self._outside
                reference = self.reference(tensor) if mine else self.mark(tensor)
            found.append((reference, tensor))
        return found

    def expect(self, func: Any, key: Any) -> None:
        """Before the call is made: raises where it is not the one that should come."""

    def note(self, func: Any, key: Any, result: Any, args: Any, kwargs: Any) -> None:
        """The call was made."""
        raise NotImplementedError


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

    def note(self, func: Any, key: Any, result: Any, args: Any, kwargs: Any) -> None:
        written = self.written()
        if _writes(name_of(func)):  # also where the version does not tell, as with set_
            written += [tensor for tensor in (*args[:1], kwargs.get("out")) if isinstance(tensor, Tensor)]
        changed = tuple(dict.fromkeys(self.reference(tensor) for tensor in written))
        found = self.numbered(result)
        shapes = tuple([tuple(tensor.shape) for _, tensor in found])
        made = tuple([reference for reference, _ in found])
        self.entries.append(Entry(func, key, made, shapes, _shared(args, result), args, kwargs, changed))


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
        self._steps, self._next, self._constants = program.at(batch), 0, program.outside
        super().__init__(own, trained, inputs)

    def entered(self, number: int, tensor: Tensor) -> None:
        if number >= len(self._constants):
            raise OtherPassError("another tensor from outside enters")
        right = self._constants[number]
        if tensor.shape != right.shape or tensor.dtype != right.dtype or not _equal(tensor.detach(), right):
            raise OtherPassError("a tensor from outside holds other numbers than before")

    def expect(self, func: Any, key: Any) -> None:
        if self._next >= len(self._steps):
            raise OtherPassError(f"{name_of(func)} is called beyond what was examined")
        step = self._steps[self._next]
        if step.func != func or step.key != key:
            raise OtherPassError(f"{name_of(func)} is called otherwise than when it was examined")

    def note(self, func: Any, key: Any, result: Any, args: Any, kwargs: Any) -> None:
        step = self._steps[self._next]
        self._next += 1
        self.written()
        found = self.numbered(result)
        if tuple([tuple(tensor.shape) for _, tensor in found]) != step.shapes:
            raise OtherPassError(f"{name_of(func)} gives other shapes than expected")
        if step.shared is not None and _shared(args, result) != step.shared:
            raise OtherPassError(f"{name_of(func)} gives a view where it gave a copy, or the other way round")

    def ended(self) -> None:
        if self._next != len(self._steps):
            raise OtherPassError("the pass ends earlier than when it was examined")


def _writes(name: str) -> bool:
    """Whether a function changes its first argument, going by its name."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name.endswith(("_", "=")) and name not in ("requires_grad_", "requires_grad=")


def _shared(args: Any, result: Any) -> bool:
    first = args[0] if args else None
    return isinstance(first, Tensor) and isinstance(result, Tensor) and result.data_ptr() == first.data_ptr()


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
