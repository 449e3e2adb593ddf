"""Dates and times as inputs: the place in a public range; sine and cosine of the place in a year, month, week, day.

Tomorrow is near today in both, and 31 December is near 1 January by the sine and cosine of the year.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedfdp.core.errors import DataError
from fedfdp.data.columns import Dated, moment
from fedfdp.data.files.cells import Floats, Place, distinct

DAY = 86400.0
_MICRO = 1e6


def seconds(column: Dated, values: pa.Array, place: Place) -> Floats:
    """A column as seconds, NaN where a value is missing: from 1970, or from midnight if it holds times of day."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return _of_texts(column, values, place)
    clock = pa.types.is_time(kind)
    if not (clock or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        fix = "write it as text such as 2024-12-31, or give a range of numbers"
        raise DataError(f"{place.file}, column {place.column!r}: holds {kind} where dates are declared; {fix}")
    if clock != column.clock and (clock or column.range is not None or set(column.cycles) != {"day"}):
        raise DataError(f"{place.file}, column {place.column!r}: {_mixed(clock)}")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = pc.local_timestamp(values)
    micro = values.cast(pa.time64("us") if clock else pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.asarray(micro.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / _MICRO


def _of_texts(column: Dated, values: pa.Array, place: Place) -> Floats:
    texts, which = distinct(values, place)
    either = column.range is None and column.cycles == ("day",)  # a time of day may have a date before it
    found = np.full(len(texts) + 1, np.nan)  # −1, a missing value, takes the last entry
    for code, text in enumerate(texts):
        known = moment(text, column.format)
        if known is not None and (known.clock == column.clock or either):
            found[code] = known.seconds
        elif len(rows := np.flatnonzero(which == code)):
            form = f"as {column.format!r} says" if column.format else "as 2024-12-31, 2024-12-31 23:59 or 23:59"
            no_date = f"{text!r:.40} is no date or time; write it {form}, or set its format"
            raise place.error(int(rows[0]), _mixed(known.clock) if known else no_date)
    return found[which]


def _mixed(clock: bool) -> str:
    kinds = ("a time of day", "dates") if clock else ("a date", "times of day")
    return f"{kinds[0]} where {kinds[1]} are declared; correct its entry in [data.columns]"


def cycle(values: Floats, name: str) -> NDArray[np.float64]:
    """Sine and cosine of the place in a cycle, (rows, 2)."""
    if name in ("year", "month"):
        unit = {"year": "Y", "month": "M"}[name]
        at = (values * _MICRO).astype("datetime64[us]")
        start = at.astype(f"datetime64[{unit}]")
        begin, end = start.astype("datetime64[us]"), (start + 1).astype("datetime64[us]")
        part = (at - begin) / (end - begin)
    elif name == "week":
        part = (values / DAY + 3) / 7 % 1  # 1 January 1970 was a Thursday
    else:
        part = values / DAY % 1
    angle = 2 * np.pi * part
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)
