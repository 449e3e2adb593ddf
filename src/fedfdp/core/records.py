"""Frozen dataclasses to bytes and back: records that cross a function call, a network or a disk unchanged.

Tensors travel as safetensors, everything else as JSON in its header. Nothing is ever unpickled.
"""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.core.weights import Weights

__all__ = ["WEIGHTS", "Weights", "digest", "from_bytes", "to_bytes"]

R = TypeVar("R")
T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

WEIGHTS = (Weights, dict[str, Tensor])  # a field of either type holds tensors by parameter name
_HEADER = "record"


def to_bytes(record: object) -> bytes:
    """The record as a safetensors file: bit-exact, self-describing, free of code."""
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_encode(record, "", tensors), sort_keys=True)
    seen: set[int] = set()
    contiguous = {}
    for path, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.data_ptr() in seen:  # one tensor under two names: a file holds a copy for each
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
    """SHA-256 over the content of records: equal exactly when every bit of them is equal.

    An int in a float field is read back from bytes as a float: with `travelled`, 1 and 1.0 have the same digest.
    """
    sha = hashlib.sha256()
    for record in records:
        tensors: dict[str, Tensor] = {}
        encoded = _encode(record, "", tensors)
        sha.update(json.dumps(_as_floats(encoded) if travelled else encoded, sort_keys=True).encode())
        for path in sorted(tensors):
            tensor = tensors[path].detach().cpu().contiguous()
            sha.update(f"{path} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _as_floats(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _as_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_floats(item) for item in value]
    return float(value) if type(value) is int and -(2**53) <= value <= 2**53 else value


def _encode(value: object, path: str, tensors: dict[str, Tensor]) -> Json:
    """JSON for `value`; its tensors go into `tensors`, each under its path."""
    if isinstance(value, Tensor):
        tensors[path or "."] = value
        return "tensor"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {name: _encode(item, f"{path}/{name}", tensors) for name, item in fields.items()}
    if isinstance(value, Mapping):
        return {name: _encode(item, f"{path}/{name}", tensors) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
    raise TypeError(f"{path or 'record'}: {type(value).__name__} cannot be part of a record")


def _decode(kind: object, value: Json, path: str, tensors: dict[str, Tensor]) -> object:
    """The value of type `kind` that `_encode` wrote; a ValueError where it is of another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), value, path, tensors)
    if kind is Tensor:
        return tensors[path or "."]
    if kind is Weights:
        return Weights.of({name: tensors[f"{path}/{name}"] for name in _of_type(dict, value, path)})
    if origin is dict:
        entries = _of_type(dict, value, path)
        return {name: _decode(arguments[1], item, f"{path}/{name}", tensors) for name, item in entries.items()}
    if origin is tuple:
        items = _of_type(list, value, path)
        return tuple(_decode(arguments[0], item, f"{path}/{i}", tensors) for i, item in enumerate(items))
    record = origin or kind
    if not isinstance(record, type):
        raise TypeError(f"{path or 'record'}: {kind} cannot be part of a record")
    if dataclasses.is_dataclass(record):
        entries, hints = _of_type(dict, value, path), _hints(kind)
        if unknown := entries.keys() - hints.keys():
            raise ValueError(f"{path}/{min(unknown)} is not part of it")
        return record(**{name: _decode(hints[name], item, f"{path}/{name}", tensors) for name, item in entries.items()})
    if kind is float and type(value) is int:
        return float(value)
    return _of_type(record, value, path)


def _of_type(kind: type[T], value: Json, path: str) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{path or 'record'} should be {kind.__name__}, is {value!r:.60}")
    return value


@lru_cache(maxsize=256)
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
