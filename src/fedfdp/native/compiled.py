"""Loops compiled by numba, kept on disk for the next process; other threads go on while one runs.

A loop over many items can be *shared*: all of torch's threads take part in it. Such a loop is a function of one
argument, the address of a call: its counts, then its arguments as whole numbers, an array as its address and shape.

    def _double(address):
        call = carray(address, CALL)
        values = vector(call, FIRST, np.float32)
        while True:
            item = one_more(address, TAKEN)
            if item >= items(call):
                return
            values[item] *= 2
            one_more(address, DONE)

    shared(_double, (torch.float32, 1))(len(values), values)
"""

import struct
from array import array
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from fedfdp.native.threads import on_all_threads

# A product and a sum may be rounded once instead of twice. Nothing else of what is written is changed.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
inlined = njit(inline="always", **OPTIONS)  # a call left in a loop would keep it from being vectorised

LAYOUT, ITEMS, TAKEN, DONE, FIRST = range(5)  # what a call begins with: a number and three counts; then the arguments
CALL = (32,)
# Of how a call is laid out: another for another way. Code kept on disk goes by its own file and would not see a change.
VERSION = 1
Kind = tuple[torch.dtype, int] | type[float] | type[int]


@cache
def compiled(function: Callable[..., None], signature: str) -> Callable[..., None]:
    """The function for arguments of these types."""
    made: Callable[..., None] = _kept(lambda kept: njit(signature, nogil=True, cache=kept, **OPTIONS)(function))
    return made


@cache
def shared(function: Callable[[Any], None], *kinds: Kind) -> Callable[..., None]:
    """The loop as a function of the number of items and of arguments of these kinds.

    A kind is a tensor's type and number of dimensions, or `float` or `int`.
    """
    made = _kept(lambda kept: cfunc("void(CPointer(int64))", cache=kept, **OPTIONS)(function))
    code = made.address

    def run(count: int, *arguments: Any) -> None:
        call = array("q", (VERSION, count, 0, 0))
        for kind, argument in zip(kinds, arguments, strict=True):
            if kind is int:
                call.append(argument)
            elif kind is float:
                call.frombytes(struct.pack("d", argument))
            elif (argument.dtype, argument.dim()) != kind or not _plain(argument):
                found = f"{argument.dtype}, {tuple(argument.shape)}, strides {argument.stride()}, {argument.device}"
                raise TypeError(f"{function.__name__}: {found} instead of {kind}")
            else:
                call.append(argument.data_ptr())
                call.extend(argument.shape)
        on_all_threads(code, call.buffer_info()[0], alone=count < 2, owners=(call, arguments))
        if call[DONE] != count:  # an error within compiled code has nowhere to go
            raise RuntimeError(f"{function.__name__}: {call[DONE]} of {count} items were done")

    run.made = made  # type: ignore[attr-defined]  # lives as long as its address is used
    return run


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.requires_grad


def _kept(made: Callable[[bool], Any]) -> Any:
    try:
        return made(True)
    except RuntimeError:  # no folder that may be written to
        return made(False)


@intrinsic  # type: ignore[untyped-decorator]
def one_more(typing: Any, address: Any, place: Any) -> Any:
    """Counts one up and returns what it was, in one step that no other thread comes between."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = builder.gep(arguments[0], [arguments[1]])
        return builder.atomic_rmw("add", counter, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(types.CPointer(types.int64), types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Any, address: Any, kind: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind.instance_type)(types.int64, kind), generate


def _items(call: Any) -> Any:
    """How many there are; none for code that would not find its arguments."""
    return call[ITEMS] if call[LAYOUT] == VERSION else 0


def _vector(call: Any, at: int, kind: Any) -> Any:
    """The argument at that place; the next one's is two further on."""
    return carray(_pointer(call[at], kind), (call[at + 1],))


def _matrix(call: Any, at: int, kind: Any) -> Any:
    """The argument at that place; the next one's is three further on."""
    return carray(_pointer(call[at], kind), (call[at + 1], call[at + 2]))


def _number(call: Any, at: int) -> Any:
    """The `float` at that place; the next argument's is one further on."""
    return np.int64(call[at]).view(np.float64)


items, vector, matrix, number = inlined(_items), inlined(_vector), inlined(_matrix), inlined(_number)
