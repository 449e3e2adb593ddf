"""Loops compiled by numba, kept on disk for the next process; other threads go on while one runs.

A loop over many items can be shared by all of torch's threads. Only its body is written, as a function of an item's
number and of the arguments, whose kinds are declared by name:

    @shared(values=(torch.float32, 1), factor=float)
    def scale(item, values, factor):
        values[item] *= factor

    scale(len(values), values, 2.0)

The code around the body, which reads the arguments from memory, is generated from these declarations.
"""

import inspect
import struct
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
import torch
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core.base import BaseContext
from numba.core.ccallback import CFunc
from numba.core.typing import Context, Signature
from numba.extending import intrinsic
from torch import Tensor

from fedfdp.native.threads import on_all_threads

# A product and a sum may be rounded once instead of twice. Nothing else of what is written is changed.
OPTIONS = {"error_model": "numpy", "fastmath": {"contract"}}
inlined = njit(inline="always", **OPTIONS)  # a call left in a loop would keep it from being vectorised

T = TypeVar("T")
Values = Sequence[ir.Value]
Generate = Callable[[BaseContext, ir.IRBuilder, Signature, Values], ir.Value]
Kind = tuple[torch.dtype, int] | type[float] | type[int]  # a tensor's dtype and number of dimensions, or a number

# A call is an array of whole numbers: its layout, three counts, then the arguments, a tensor as its address and shape.
LAYOUT, ITEMS, TAKEN, DONE, FIRST = range(5)
_AROUND = """
# Version 1. Another number here makes numba forget kept code: for changes of one_more, _pointer or _number.
def {name}(address):
    call = carray(address, ({length},))
    items = call[{ITEMS}] if call[{LAYOUT}] == {layout} else 0
    {reads}
    while True:
        item = one_more(address, {TAKEN})
        if item >= items:
            return
        body(item, {arguments})
        one_more(address, {DONE})
"""


@cache
def compiled(function: Callable[..., None], signature: str) -> Callable[..., None]:
    """The function for arguments of these types."""
    made: Callable[..., None] = _kept(lambda kept: njit(signature, nogil=True, cache=kept, **OPTIONS)(function))
    return made


def shared(room: Callable[..., object] | None = None, /, **kinds: Kind) -> Callable[[Callable[..., None]], "Shared"]:
    """Makes the body of a loop a function of the number of items and of arguments of these kinds.

    `room` makes memory for each thread: a function of the same arguments, whose result the body gets after the item.
    """
    return lambda body: Shared(body, room, kinds)


class Shared:
    """A loop that all threads take part in. It is compiled, or read from disk, when it is first called."""

    def __init__(self, body: Callable[..., None], room: Callable[..., object] | None, kinds: dict[str, Kind]) -> None:
        self.name, self.body, self.room, self.kinds = body.__name__, body, room, kinds
        for function, leading in ((body, 1 if room is None else 2), (room, 0)):
            if function is not None:
                _check(function, leading, list(kinds))
        self.source, self.layout = _around(self.name, kinds, room=room is not None)

    def __call__(self, count: int, *arguments: Tensor | float) -> None:
        call = array("q", (self.layout, count, 0, 0))
        for kind, argument in zip(self.kinds.values(), arguments, strict=True):
            if kind is float:
                call.frombytes(struct.pack("d", argument))
            elif isinstance(argument, Tensor) and (argument.dtype, argument.dim()) == kind and _plain(argument):
                call.append(argument.data_ptr())
                call.extend(argument.shape)
            elif kind is int and isinstance(argument, int):
                call.append(argument)
            else:
                raise TypeError(f"{self.name}: {_shown(argument)} instead of {kind}")
        code = self.code.address
        assert code is not None
        on_all_threads(code, call.buffer_info()[0], alone=count < 2, owners=(call, arguments))
        if call[DONE] != count:  # an error within compiled code has nowhere to go
            raise RuntimeError(f"{self.name}: {call[DONE]} of {count} items were done")

    @cached_property
    def code(self) -> CFunc:
        """The machine code; its address is valid as long as this object is there."""
        scope: dict[str, object] = {"np": np, "carray": carray, "pointer": _pointer, "number": _number}
        scope |= {"one_more": one_more, "body": inlined(self.body), "room": self.room and inlined(self.room)}
        scope["__name__"] = self.body.__module__  # which the next process imports before it reads the code from disk
        # Numba finds kept code by file, name and line, as long as that file is unchanged. The name holds the layout,
        # which may change while the file of the body does not.
        place = self.body.__code__
        exec(compile("\n" * (place.co_firstlineno - 3) + self.source, place.co_filename, "exec"), scope)
        loop = scope[f"{self.name}_{self.layout:x}"]
        return _kept(lambda kept: cfunc("void(CPointer(int64))", cache=kept, **OPTIONS)(loop))


def _check(function: Callable[..., object], leading: int, names: list[str]) -> None:
    """A TypeError unless the parameters after the leading ones have these names."""
    parameters = list(inspect.signature(function).parameters)
    if parameters[leading:] != names or len(parameters) != leading + len(names):
        raise TypeError(f"{function.__name__}: parameters {parameters[leading:]}, where {names} are declared")
    if function.__closure__:
        raise TypeError(f"{function.__name__}: a compiled loop cannot see variables of a function around it")


def _around(name: str, kinds: dict[str, Kind], *, room: bool) -> tuple[str, int]:
    """The source of the loop around a body, and the number of its layout."""
    reads, at = [], FIRST
    for argument, kind in kinds.items():
        if isinstance(kind, tuple):
            dtype, dimensions = str(kind[0]).removeprefix("torch."), kind[1]
            shape = "".join(f"call[{at + 1 + dimension}], " for dimension in range(dimensions))
            reads.append(f"a_{argument} = carray(pointer(call[{at}], np.{dtype}), ({shape}))")
            at += 1 + dimensions
        else:
            reads.append(f"a_{argument} = number(call[{at}])" if kind is float else f"a_{argument} = call[{at}]")
            at += 1
    arguments = ", ".join(f"a_{argument}" for argument in kinds)
    if room:
        reads.append(f"own_room = room({arguments})")
        arguments = f"own_room, {arguments}"
    fields = {"reads": "\n    ".join(reads), "arguments": arguments, "length": at}
    fields |= {"ITEMS": ITEMS, "LAYOUT": LAYOUT, "TAKEN": TAKEN, "DONE": DONE}
    layout = zlib.crc32(_AROUND.format(name="", layout="", **fields).encode())
    return _AROUND.format(name=f"{name}_{layout:x}", layout=layout, **fields), layout


def _plain(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.requires_grad


def _shown(argument: Tensor | float) -> str:
    if not isinstance(argument, Tensor):
        return repr(argument)
    return f"{argument.dtype}, {tuple(argument.shape)}, strides {argument.stride()}, {argument.device}"


def _kept(made: Callable[[bool], T]) -> T:
    """Compiles with a cache on disk; without one if no folder may be written to."""
    try:
        return made(True)
    except RuntimeError:  # no folder that may be written to
        return made(False)


@intrinsic  # type: ignore[untyped-decorator]
def one_more(typing: Context, address: types.Type, place: types.Type) -> tuple[Signature, Generate]:
    """Adds one to the number at that place and returns what it was: an atomic operation."""

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        counter = builder.gep(arguments[0], [arguments[1]])
        return builder.atomic_rmw("add", counter, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(types.CPointer(types.int64), types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Context, address: types.Type, kind: types.Type) -> tuple[Signature, Generate]:
    """The address as a pointer to numbers of that kind."""

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind.instance_type)(types.int64, kind), generate


@inlined  # type: ignore[untyped-decorator]
def _number(bits: np.int64) -> np.float64:
    """The float that has these bits."""
    return np.int64(bits).view(np.float64)
