"""A file's columns as numbers: ranges scaled to [−1, 1], one input per category, labels as class numbers.

A cell that does not fit raises a DataError that names file, row and column. No statistic of the data is used.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedfdp.data.columns import Categorical, Column, Dated, Numeric, Range, plainest
from fedfdp.data.files import dates
from fedfdp.data.files.cells import Floats, Place, distinct, in_words, numbers

_TEST = {"test": True, "1": True, "true": True, "yes": True, "train": False, "0": False, "false": False, "no": False}


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
    texts, which = distinct(values, place, known)
    unlisted = len(names) if column is not None and column.other else -1
    wanted = [known.get(text, known.get(plainest(text), unlisted)) for text in texts]
    table = np.array([*wanted, known_missing], dtype=np.int64)
    got: NDArray[np.int64] = table[which]  # −1, a missing value, takes the last entry
    if len(bad := np.flatnonzero(got < 0)):
        row = int(bad[0])
        if which[row] < 0:
            fix = "set its `missing`, or fill it in" if column and not place.trained else "fill it in or remove the row"
            raise place.error(row, f"{in_words(values[row])}; {fix}")
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        what = f"no such category as {texts[which[row]]!r}" if column else f"label {texts[which[row]]!r} is no class"
        raise place.error(row, f"{what}; known: {listed}; {_unknown(place, column)}")
    return got


def _unknown(place: Place, column: Categorical | None) -> str:
    """What to do about a text that is not listed."""
    if place.trained:
        return "correct it or remove the row: this model knows no others; one trained with other = true would"
    return "add it to the categories or set other = true" if column else "correct it or add it to data.classes"


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
    got = dates.seconds(column, values, place) if isinstance(column, Dated) else numbers(values, place)
    absent = np.isnan(got)
    if isinstance(column, Dated) or column.range is not None:
        got = _filled(column, got, absent, place)
    at = 0
    if isinstance(column, Dated):
        if column.range is not None:
            out[:, 0], at = scaled(got, column.range), 1
        for name in column.cycles:
            out[:, at : at + 2] = dates.cycle(got, name)
            at += 2
    else:
        # A column without a range is read to estimate one: its values stay as they are, NaN where one is missing.
        out[:, 0], at = got if column.range is None else scaled(got, column.range), 1
    if column.indicator:
        out[:, at] = absent


def _filled(column: Numeric | Dated, values: Floats, absent: NDArray[np.bool_], place: Place) -> Floats:
    if not absent.any():
        return values
    if column.missing is None:
        fix = f"set missing = a public value for it: {column.name!r} = {{ range = [low, high], missing = value }}"
        if place.trained:
            fix = "fill it in or remove the row: this model was trained with no value for missing ones"
        raise place.error(int(np.flatnonzero(absent)[0]), f"is missing; {fix}")
    return np.where(absent, column.missing, values)
