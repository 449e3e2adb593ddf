"""A file's columns as numbers: ranges scaled to [−1, 1], one input per category, labels as class numbers.

A cell that does not fit raises a DataError that names file, row and column. No statistic of the data is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedfdp.core.errors import DataError
from fedfdp.data.schema import Categorical, Column, Numeric, Range, plainest, text_of

Floats = NDArray[np.float64]

_TEST = {"test": True, "1": True, "true": True, "yes": True, "train": False, "0": False, "false": False, "no": False}


@dataclass(frozen=True)
class Place:
    """Where some values come from, for errors. Rows count from 1, the first row below the header."""

    file: str
    column: str
    first: int = 1  # the row of the first value

    def error(self, row: int, what: str) -> DataError:
        return DataError(f"{self.file}, row {self.first + row}, column {self.column!r}: {what}")


def numbers(values: pa.Array, place: Place) -> Floats:
    """A column as float64, NaN where a value is missing."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return numbers(values.dictionary_decode(), place)
    if not (_numeric(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        fix = "list its categories, or make it a number"
        raise DataError(f"{place.file}, column {place.column!r}: holds {kind} where a range needs numbers; {fix}")
    got: Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if len(bad := np.flatnonzero(np.isinf(got))):
        raise place.error(int(bad[0]), "is infinite; correct it or leave the cell empty")
    return got


def scaled(values: Floats, bounds: Range) -> Floats:
    """[low, high] scaled to [−1, 1]; a value outside is taken as the nearer end. The ends come out exact."""
    low, high = bounds
    return (np.clip(values, low, high) - low) / (high - low) * 2 - 1


def codes(values: pa.Array, names: Sequence[str], place: Place, column: Categorical | None = None) -> NDArray[np.int64]:
    """For each value, its position among the names. 1.0 counts as 1, unless 1.0 is a name itself.

    A value that is none of the names is an error, unless the column has room for others.
    """
    known = {name: code for code, name in enumerate(names)}
    if column is not None and column.missing is not None:
        known_missing = known.get(column.missing, len(names))
    else:
        known_missing = -1
    texts, which = distinct(values, place)
    unlisted = len(names) if column is not None and column.other else -1
    wanted = [known.get(text, known.get(plainest(text), unlisted)) for text in texts]
    table = np.array([*wanted, known_missing], dtype=np.int64)
    got: NDArray[np.int64] = table[which]  # −1, a missing value, takes the last entry
    if len(bad := np.flatnonzero(got < 0)):
        row = int(bad[0])
        if which[row] < 0:
            fix = "set its `missing`, or fill it in" if column is not None else "fill it in or remove the row"
            raise place.error(row, f"is empty; {fix}")
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        what = f"no such category as {texts[which[row]]!r}" if column else f"label {texts[which[row]]!r} is no class"
        fix = "add it to the categories or set other = true" if column else "correct it or add it to data.classes"
        raise place.error(row, f"{what}; known: {listed}; {fix}")
    return got


def distinct(values: pa.Array, place: Place) -> tuple[list[str], NDArray[np.int64]]:
    """The different texts in a column, and which of them each row has; −1 if it has none."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    encoded = values.dictionary_encode()
    which = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    try:
        texts = [text_of(value) for value in encoded.dictionary.to_pylist()]
    except UnicodeDecodeError:
        raise DataError(f"{place.file}, column {place.column!r}: text that is not UTF-8; write it as UTF-8") from None
    empty = np.array([text == "" for text in texts] + [False])
    return texts, np.where(empty[which], -1, which) if empty.any() else which


def marks(values: pa.Array, place: Place) -> NDArray[np.bool_]:
    """Which rows are for the test."""
    texts, which = distinct(values, place)
    table = [_TEST.get(plainest(text.lower())) for text in texts]
    for row in np.flatnonzero((which < 0) | np.array([entry is None for entry in [*table, None]])[which]):
        raise place.error(int(row), "says neither train nor test; write train or test, 0 or 1, false or true")
    return np.array([bool(entry) for entry in [*table, None]])[which]


def encode(column: Column, values: pa.Array, place: Place, out: NDArray[np.float32]) -> None:
    """Writes a column's inputs into `out`, (rows, column.width)."""
    if isinstance(column, Categorical):
        out[:] = 0
        out[np.arange(len(out)), codes(values, column.categories, place, column)] = 1
        return
    got = numbers(values, place)
    absent = np.isnan(got)
    if absent.any():
        if column.range is not None:
            got = _filled(column, got, absent, place)
        if column.indicator:
            out[:, 1] = absent
    elif column.indicator:
        out[:, 1] = 0
    # A column without a range is read to estimate one: its values stay as they are, NaN where one is missing.
    out[:, 0] = got if column.range is None else scaled(got, column.range)


def _filled(column: Numeric, values: Floats, absent: NDArray[np.bool_], place: Place) -> Floats:
    if column.missing is None:
        fix = f"set missing = a public value for it: {column.name!r} = {{ range = [low, high], missing = value }}"
        raise place.error(int(np.flatnonzero(absent)[0]), f"is missing; {fix}")
    return np.where(absent, column.missing, values)


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
