"""Whether a record from the other side may be used: its shapes, types, ranges and size, before anything is computed.

A check never repairs: it raises a DataError that names what does not fit.
"""

import dataclasses
import math
import typing
from typing import TypeVar

from torch import Tensor

from fedfdp.algorithms.base import Upload
from fedfdp.core import ranges, records
from fedfdp.core import weights as w
from fedfdp.core.errors import DataError, SettingError
from fedfdp.core.records import WEIGHTS, Weights

R = TypeVar("R")
HEADROOM = 2**20  # bytes for names and numbers beside the tensors


def most_bytes(kind: type[object], template: Weights) -> int:
    """The most bytes of such a record that are let through: twice what it has with tensors like the model's."""
    dicts = sum(hint in WEIGHTS for hint in typing.get_type_hints(kind).values())
    model = sum(tensor.numel() * tensor.element_size() for tensor in template.values())
    return int(2 * max(dicts, 1) * model + HEADROOM)


def read(kind: type[R], data: bytes, template: Weights) -> R:
    """The record in `data`, if every tensor of it is shaped like the model's and every number is in its range.

    A number that has no range of its own must be finite.
    """
    try:
        record = records.from_bytes(kind, data)
    except DataError:
        raise
    except Exception as error:  # whatever a hostile sender made the parser do
        raise DataError(f"not a valid {kind.__name__} record: {type(error).__name__}") from None
    _check(record, kind.__name__, template)
    try:
        ranges.check(record, kind.__name__)
    except SettingError as error:
        raise DataError(str(error)) from None
    return record


def _check(value: object, path: str, template: Weights) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{path} is {value}")
    if isinstance(value, Tensor):
        raise DataError(f"{path} is a tensor that belongs to no parameter")
    if isinstance(value, dict):
        for name, item in value.items():
            _check(item, f"{path}.{name[:60]}", template)
    elif isinstance(value, tuple):
        for item in value:
            _check(item, path, template)
    elif dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        for f in dataclasses.fields(value):
            check = _check_weights if hints[f.name] in WEIGHTS else _check
            check(getattr(value, f.name), f"{path}.{f.name}", template)


def _check_weights(weights: Weights, path: str, template: Weights) -> None:
    if weights.keys() != template.keys():
        odd = sorted(weights.keys() ^ template.keys())[0]
        raise DataError(f"{path} does not have the model's parameters: {odd[:60]!r}")
    for name, expected in template.items():
        found = weights[name]
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise DataError(
                f"{path}.{name} is {found.dtype} {tuple(found.shape)}, not {expected.dtype} {tuple(expected.shape)}"
            )
    if not w.all_finite(weights):
        raise DataError(f"{path} holds NaN or infinities")


def check_upload(upload: Upload, *, client: str, records: int | None) -> None:
    """Compares what only the server can know: who sent the upload, and what that node declared before."""
    if upload.client != client:
        raise DataError(f"an upload in the name of {upload.client!r:.60}")
    if upload.records < 1 or (records is not None and upload.records != records):
        raise DataError(f"an upload of {upload.records} records, where {records} were declared")
    if upload.discount != 1.0:
        raise DataError(f"an upload that sets its own discount, {upload.discount}")
