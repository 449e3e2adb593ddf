"""The cells of a file's column as numbers or as texts, and where they are.

A cell that cannot be read raises a DataError that names file, row and column.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedfdp.core.errors import DataError
from fedfdp.data.columns import text_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """Where some values come from, for errors. Rows count from 1, the first row below the header."""

    file: str
    column: str
    first: int = 1  # the row of the first value
    missing: tuple[str, ...] = ("",)  # texts that mean "no value" there
    rows: NDArray[np.int64] | None = None  # which of the rows from `first` on these values are; None: all, in order
    trained: bool = False  # whether a model was trained already: what it takes can no longer be changed

    def error(self, row: int, what: str) -> DataError:
        row = self.first + (row if self.rows is None else int(self.rows[row]))
        return DataError(f"{self.file}, row {row}, column {self.column!r}: {what}")


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


def distinct(values: pa.Array, place: Place, listed: Collection[str] = ()) -> tuple[list[str], NDArray[np.int64]]:
    """The different texts in a column, and which of them each row has; −1 if it has none.

    A text that means "no value" does not where it is listed: "None" may be a class.
    """
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
    empty = np.array([text in place.missing and text not in listed for text in texts] + [False])
    return texts, np.where(empty[which], -1, which) if empty.any() else which


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def in_words(value: pa.Scalar) -> str:
    """Why a cell counts as missing, as the beginning of an error."""
    text = value.as_py()
    empty = not isinstance(text, str) or not text.strip()
    return "is empty" if empty else f"is {text.strip()!r:.40}, which counts as missing (data.missing)"
