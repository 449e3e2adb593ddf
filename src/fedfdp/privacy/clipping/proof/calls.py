"""The calls of a forward pass as data: what each reads and makes, in one pass that was seen or in any like it.

Only describes. What a call means for privacy is decided in prove.py, and a pass is observed by watcher.py.
"""

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedfdp.privacy.clipping.proof.places import Meeting, Reference
from fedfdp.privacy.clipping.undo import bits

Function = Callable[..., object]  # a function of torch's
Arguments = tuple[object, ...]
Keywords = Mapping[str, object]
Key = tuple[object, ...]  # a call's arguments as something to compare: tensors as references, all else by value

_COMPILED = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket),
)

KNOWN = frozenset({*_COMPILED, types.FunctionType})  # what functions of torch's are

SIZES_KEPT = 256  # batch sizes for which the expected calls are kept


class UnsupportedError(Exception):
    """The layer rules do not cover this pass. It is done another way."""


class OtherPassError(UnsupportedError):
    """The pass makes other calls than the one that was proven."""


class Size(NamedTuple):
    """A whole number that depends on the number of records B: fixed + each·B."""

    fixed: int
    each: int

    def at(self, batch: int) -> int:
        return self.fixed + self.each * batch


Shape = tuple[int | Size, ...]


@dataclass
class TracedCall:
    """One call of a pass that was traced."""

    func: Function
    key: Key
    made: tuple[Reference, ...]  # its results
    shapes: tuple[tuple[int, ...], ...]
    shared: bool  # whether the first result lies in the first argument's memory
    args: Arguments
    kwargs: Keywords
    changed: tuple[Reference, ...]  # arguments that the call writes to
    graded: bool  # whether gradients were enabled


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """One call of a proven pass."""

    func: Function
    key: object
    shapes: tuple[object, ...]
    shared: bool | None  # whether the result is a view of the first argument; None where nothing writes to either
    graded: bool  # whether gradients are enabled
    meeting: Meeting | None = None  # of parameters with records
    step: str = ""  # how it rearranges a parameter, a key of `STEPS` (proof/steps.py); empty: in no way that is known
    simple: bool = False  # whether it has neither a meeting nor a step, and its function's kind is simple
    unchanged: bool = False  # whether its function gives the same value
    shape: object = field(init=False)  # of its only result; None where there is not one

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.shapes[0] if len(self.shapes) == 1 else None)


@dataclass
class Program:
    """A proven pass: its calls, with a Size for what grows with the records, and the numbers from outside."""

    calls: list[ExpectedCall]
    outside: list[Tensor]
    draws: bool  # whether it may draw random numbers
    overwrites: bool  # whether it writes to the records themselves: a pass that is repeated would find others
    _filled: dict[int, list[ExpectedCall]] = field(default_factory=dict)

    def at(self, batch: int) -> list[ExpectedCall]:
        """The calls for this many records."""
        found = self._filled.get(batch)
        if found is None:
            if len(self._filled) >= SIZES_KEPT:
                self._filled.clear()
            found = self._filled[batch] = [
                replace(call, key=at(call.key, batch), shapes=_parts(at(call.shapes, batch))) for call in self.calls
            ]
        return found


def at(pattern: object, batch: int) -> object:
    """A key or a shape with its sizes filled in for this many records."""
    if type(pattern) is tuple:
        return tuple([at(part, batch) for part in pattern])
    return pattern.at(batch) if type(pattern) is Size else pattern


def rebuilt(value: object, pattern: object, batch: int, values: Mapping[Reference, Tensor]) -> object:
    """An argument with its sizes for this many records and with these tensors."""
    if isinstance(value, Tensor):
        assert isinstance(pattern, Reference)
        return values[pattern]
    if type(pattern) is Size:
        return pattern.at(batch)
    if isinstance(value, slice):
        ends = zip((value.start, value.stop, value.step), _parts(pattern)[1:], strict=True)
        return slice(*[rebuilt(end, own, batch, values) for end, own in ends])
    if isinstance(value, dict):
        named = zip(sorted(value, key=str), _parts(pattern), strict=True)
        return {n: rebuilt(value[n], _parts(pair)[1], batch, values) for n, pair in named}
    if isinstance(value, (tuple, list)):
        parts = [rebuilt(part, own, batch, values) for part, own in zip(value, _parts(pattern), strict=True)]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def called(
    func: Function, args: Arguments, kwargs: Keywords, pattern: Key, batch: int, values: Mapping[Reference, Tensor]
) -> object:
    """The call for this many records, on these tensors."""
    given = [rebuilt(a, k, batch, values) for a, k in zip(args, pattern, strict=False)]
    names = sorted(kwargs)
    named = _parts(pattern[len(args)]) if names else ()
    return func(
        *given, **{n: rebuilt(kwargs[n], _parts(p)[1], batch, values) for n, p in zip(names, named, strict=True)}
    )


def _parts(pattern: object) -> tuple[object, ...]:
    assert isinstance(pattern, tuple)
    return pattern


def references(key: object) -> Iterator[Reference]:
    """The references in a key, in order."""
    if type(key) is Reference:
        yield key
    elif type(key) is tuple:
        for part in key:
            yield from references(part)


def tensors_in(value: object) -> Iterator[Tensor]:
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


def first_shares_memory(args: Arguments, result: object) -> bool:
    """Whether the result begins where the first argument does."""
    first = args[0] if args else None
    return isinstance(first, Tensor) and isinstance(result, Tensor) and result.data_ptr() == first.data_ptr()


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are alike in shape, type and every bit."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(bits(one), bits(other))


@cache
def name_of(func: Function) -> str:
    """The name of a function of torch's. A property has its own name, with `=` behind it where it is set.

    A function from elsewhere has its module before its name, so that it cannot pass for one of torch's.
    """
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        owner = str(getattr(getattr(func, "__self__", None), "__name__", ""))
        return owner if name == "__get__" else f"{owner}="
    home = str(getattr(func, "__module__", None) or "torch")
    own = home.startswith("torch._ops.aten") if home.startswith("torch._ops") else home.partition(".")[0] == "torch"
    return name if (own or home == "builtins") and _is_there(func, home) else f"{home}.{name}"


def _is_there(func: Function, home: str) -> bool:
    """Whether a function written in Python is found where it says that it is from."""
    if isinstance(func, _COMPILED):
        return True
    module = found = sys.modules.get(home)
    for part in str(getattr(func, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    places = (found, getattr(module, str(getattr(func, "__name__", "")), None), *vars(Tensor).values())
    return any(func is place for place in places)
