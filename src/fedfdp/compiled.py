"""Loops compiled by numba, kept on disk for the next process; other threads go on while one runs.

A loop over many items can be *shared*: all of torch's threads take part in it. Such a loop is a function of one
argument, the address of a call: its counters, then its arguments as whole numbers, an array as its address and shape.

    def _double(address):
        call = carray(address, CALL)
        values = vector(call, FIRST, np.float32)
        while True:
            item = one_more(address, TAKEN)
            if item >= call[ITEMS]:
                return
            values[item] *= 2
            one_more(address, DONE)

    shared(_double, torch.float32)(len(values), values)
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

from fedfdp.parallel import on_all_threads

# A product and a sum may be rounded once instead of twice. Nothing else of what is written is changed.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
inlined = njit(inline="always", **OPTIONS)  # a call left in a loop would keep it from being vectorised

ITEMS, TAKEN, DONE, FIRST = range(4)  # what a call begins with: three counts; from FIRST on the arguments
CALL = (32,)


@cache
def compiled(function: Callable[..., None], signature: str) -> Callable[..., None]:
    """The function for arguments of these types."""
    made: Callable[..., None] = _kept(lambda kept: njit(signature, nogil=True, cache=kept, **OPTIONS)(function))
    return made


@cache
def shared(function: Callable[[Any], None], *kinds: torch.dtype | type) -> Callable[..., None]:
    """The loop as a function of the number of items and of arguments of these kinds: tensors, or `float` or `int`."""
    made = _kept(lambda kept: cfunc("void(CPointer(int64))", cache=kept, **OPTIONS)(function))
    code = made.address

    def run(items: int, *arguments: Any) -> None:
        call = array("q", (items, 0, 0))
        for kind, argument in zip(kinds, arguments, strict=True):
            if kind is int:
                call.append(argument)
            elif kind is float:
                call.frombytes(struct.pack("d", argument))
            elif argument.dtype != kind or argument.device.type != "cpu" or not argument.is_contiguous():
                raise TypeError(f"{function.__name__}: {argument.dtype}, {argument.device}, {argument.stride()}")
            else:
                call.append(argument.data_ptr())
                call.extend(argument.shape)
        on_all_threads(code, call.buffer_info()[0], alone=items < 2)
        if call[DONE] != items:  # an error within compiled code has nowhere to go
            raise RuntimeError(f"{function.__name__}: {call[DONE]} of {items} items were done")

    run.made = made  # type: ignore[attr-defined]  # lives as long as its address is used
    return run


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


def _vector(call: Any, at: int, kind: Any) -> Any:
    """The argument at that place; the next one's is two further on."""
    return carray(_pointer(call[at], kind), (call[at + 1],))


def _matrix(call: Any, at: int, kind: Any) -> Any:
    """The argument at that place; the next one's is three further on."""
    return carray(_pointer(call[at], kind), (call[at + 1], call[at + 2]))


def _number(call: Any, at: int) -> Any:
    """The `float` at that place; the next argument's is one further on."""
    return np.int64(call[at]).view(np.float64)


vector, matrix, number = inlined(_vector), inlined(_matrix), inlined(_number)
