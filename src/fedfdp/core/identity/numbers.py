"""Reads tensors, arrays and numpy's functions for a reader: their numbers, type and shape, and what is put on them."""

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.identity.hashing import hashed

if TYPE_CHECKING:
    from fedfdp.core.identity.reader import Reader


def of_tensor(reader: "Reader", value: Tensor, path: str) -> bytes:
    attributes = {name: v for name, v in vars(value).items() if not name.startswith("_fedfdp")}
    if attributes:
        return hashed(_numbers(reader, value, path), reader.mapping(attributes, path))
    return _numbers(reader, value, path)


def _numbers(reader: "Reader", value: Tensor, path: str) -> bytes:
    if id(value) in reader.trained:
        label = reader.trained[id(value)]
        named = label[0] if isinstance(label, tuple) else label
        return hashed("trained", str(value.dtype), str(tuple(value.shape)), repr(named))
    if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
        return reader.unread(value, path)
    held = value.detach().cpu().contiguous()
    raw = held.reshape(-1).view(torch.uint8).numpy().data if held.numel() else b""
    return hashed("tensor", str(value.dtype), str(tuple(value.shape)), hashlib.sha256(raw).digest())


def of_array(reader: "Reader", value: NDArray[Any] | np.generic, path: str) -> bytes:
    array = np.asanyarray(value)
    if isinstance(array, np.ma.MaskedArray):
        both = (np.asarray(array.data), np.ma.getmaskarray(array))
        return hashed("masked", *[of_array(reader, part, path) for part in both])
    if vars_of := not isinstance(array, np.memmap) and getattr(array, "__dict__", None):
        numbers = of_array(reader, np.asarray(array), path)
        return hashed(numbers, reader.digest(type(value), path), reader.mapping(vars_of, path))
    if array.dtype.hasobject:
        return reader.all(f"array {array.shape}", array.ravel().tolist(), path)
    return hashed("array", array.dtype.str, str(array.shape), np.ascontiguousarray(array).tobytes())


def of_ufunc(reader: "Reader", value: np.ufunc, path: str) -> bytes:
    """By name if it is numpy's or scipy's; one that was made of a function of the user's cannot be read."""
    homes = (np, sys.modules.get("scipy.special"))
    if any(getattr(place, value.__name__, None) is value for place in homes):
        return hashed("ufunc", str(value))
    return reader.unread(value, path)
