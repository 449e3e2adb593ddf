"""Plain records that cross a function call, a network or a disk unchanged: frozen dataclasses to bytes and back.

Tensors travel as safetensors, the rest as JSON in its header. Nothing is ever unpickled.
"""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.core.weights import Weights

__all__ = ["WEIGHTS", "Weights", "digest", "from_bytes", "to_bytes"]

R = TypeVar("R")

WEIGHTS = (Weights, dict[str, Tensor])  # a field of either type holds tensors by parameter name
_HEADER = "record"
_SCALARS = (bool, int, float, str, type(None))


def to_bytes(record: object) -> bytes:
    """One record as a safetensors file: bit-exact, self-describing, free of code."""
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_encode(record, "", tensors), sort_keys=True)
    seen: set[int] = set()
    contiguous = {}
    for path, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.data_ptr() in seen:  # the same tensor under two names: a file holds each on its own
            tensor = tensor.clone()
        seen.add(tensor.data_ptr())
        contiguous[path] = tensor
    return safetensors.torch.save(contiguous, metadata={_HEADER: header})


def from_bytes(kind: type[R], data: bytes) -> R:
    """The record of type `kind` in `data`; a DataError says what does not fit."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"][_HEADER]
        tensors = safetensors.torch.load(data)
        return typing.cast(R, _decode(kind, json.loads(header), "", tensors))
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise DataError(f"not a valid {kind.__name__} record: {error}") from None


def digest(*records: object, travelled: bool = False) -> str:
    """SHA-256 over the content of records: equal exactly when every bit of them is.

    A whole number in a field of floats comes back from bytes as a float: `travelled` takes 1 and 1.0 as the same.
    """
    sha = hashlib.sha256()
    for record in records:
        tensors: dict[str, Tensor] = {}
        encoded = _encode(record, "", tensors)
        sha.update(json.dumps(_as_floats(encoded) if travelled else encoded, sort_keys=True).encode())
        for path in sorted(tensors):
            tensor = tensors[path].detach().cpu().contiguous()
            sha.update(f"{path} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.view(torch.uint8).numpy().data if tensor.dim() else tensor.numpy().tobytes())
    return sha.hexdigest()


def _as_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_floats(item) for item in value]
    return float(value) if type(value) is int and -(2**53) <= value <= 2**53 else value


def _encode(value: object, path: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value`; its tensors go into `tensors` under their path."""
    if isinstance(value, Tensor):
        tensors[path or "."] = value
        return "tensor"
    if isinstance(value, _SCALARS):
        return value
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {name: _encode(item, f"{path}/{name}", tensors) for name, item in fields.items()}
    if isinstance(value, Mapping):
        return {name: _encode(item, f"{path}/{name}", tensors) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
    raise TypeError(f"{path or 'record'}: {type(value).__name__} cannot be part of a record")


def _decode(kind: Any, value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The value of type `kind` that `_encode` wrote."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), value, path, tensors)
    if kind is Tensor:
        return tensors[path or "."]
    if dataclasses.is_dataclass(origin or kind):
        hints = _hints(kind)
        unknown = set(value) - set(hints)
        if unknown:
            raise ValueError(f"{path}/{min(unknown)} is not part of it")
        fields = {name: _decode(hints[name], item, f"{path}/{name}", tensors) for name, item in value.items()}
        return typing.cast(Any, kind)(**fields)
    if kind is Weights:
        return Weights.of(_decode(dict[str, Tensor], value, path, tensors))
    if origin is dict:
        return {name: _decode(arguments[1], item, f"{path}/{name}", tensors) for name, item in value.items()}
    if origin is tuple:
        return tuple(_decode(arguments[0], item, f"{path}/{i}", tensors) for i, item in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{path} should be {kind.__name__}, is {value!r}")
    return value


def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields; of a generic one, `Box[int]`, with its parameters filled in."""
    origin = typing.get_origin(kind)
    if origin is None:
        return typing.get_type_hints(kind)
    given = dict(zip(origin.__parameters__, typing.get_args(kind), strict=True))

    def filled(hint: Any) -> Any:
        if isinstance(hint, TypeVar):
            return given[hint]
        open_ones = getattr(hint, "__parameters__", ())
        return hint[tuple(given[parameter] for parameter in open_ones)] if open_ones else hint

    return {name: filled(hint) for name, hint in typing.get_type_hints(origin).items()}
