"""The columns of a table that nobody has described yet: what each seems to hold, read from all of its rows.

It reads private records as they are, and is for the data holder only.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedfdp.core.errors import DataError
from fedfdp.data.columns import moment, plainest
from fedfdp.data.files.cells import Place, distinct
from fedfdp.data.files.tables import Table
from fedfdp.data.files.text_table import TextTable
from fedfdp.data.schema import MISSING

FEW = 20  # a column with at most so many different values may be one of categories
# How dates are written beside 2024-12-31; the first that fits all values is taken.
FORMATS = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
)
Kind = Literal["number", "date", "time", "text", "empty"]


@dataclass(frozen=True)
class Profile:
    """What a column holds."""

    name: str
    kind: Kind
    missing: int
    different: int  # how many different values, at most FEW + 1
    values: tuple[str, ...]  # which, if there are few
    low: float | None = None  # the smallest number, or date in seconds; None for texts
    high: float | None = None
    whole: bool = False  # whether all numbers are whole
    formats: tuple[str, ...] = ()  # of dates: how they are written, if not as 2024-12-31; several where all fit
    row_number: bool = False  # whether it counts the rows, or names each row


def profiles(table: Table) -> tuple[int, tuple[Profile, ...]]:
    """The number of rows, and what each column holds."""
    mark = table.decimal_mark(table.names) if isinstance(table, TextTable) else "."
    columns, records = [_Column(name, mark) for name in table.names], 0
    for piece in table.pieces(dict.fromkeys(table.names, False)):
        records += len(piece)
        for column in columns:
            values = piece.column(column.name)
            if pa.types.is_nested(values.type):
                raise DataError(
                    f"{table.path}, column {column.name!r}: holds {values.type}; only plain columns are read"
                )
            column.add(values, Place(str(table.path), column.name, missing=MISSING))
    return records, tuple(column.profile() for column in columns)


class _Column:
    """A column while it is read."""

    def __init__(self, name: str, mark: str) -> None:
        self.name, self.mark = name, mark
        self.missing = self.present = 0
        self.values: set[str] = set()
        self.many = False  # whether there are more than FEW
        self.numbers, self.whole, self.all_differ = True, True, True
        self.low, self.high = np.inf, -np.inf
        # Which forms fit all dates so far, and the smallest and largest by each; None is 2024-12-31.
        self.dates: dict[str | None, tuple[float, float]] = dict.fromkeys((None, *FORMATS), (np.inf, -np.inf))
        self.clock: bool | None = None

    def add(self, values: pa.Array, place: Place) -> None:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        values = self._present(values)
        if len(values) == 0:
            return
        self.present += len(values)
        many = pc.count_distinct(values).as_py()
        self.all_differ &= many == len(values)
        if self.numbers:
            self._add_numbers(values)
        if not self.numbers and self.dates:
            self._add_dates(distinct(values.unique(), place)[0])
        if not (self.many or many > FEW):
            self.values.update(plainest(text) for text in distinct(values.unique(), place)[0])
        self.many = self.many or many > FEW or len(self.values) > FEW

    def _present(self, values: pa.Array) -> pa.Array:
        """The values that are not missing."""
        absent = pc.is_null(values, nan_is_null=True)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            trimmed = pc.utf8_trim_whitespace(values)
            absent = pc.or_(absent, pc.is_in(trimmed, value_set=pa.array(MISSING, values.type)))
            values = trimmed
        self.missing += pc.sum(absent).as_py() or 0
        return values.filter(pc.invert(absent))

    def _add_numbers(self, values: pa.Array) -> None:
        if pa.types.is_boolean(values.type):
            self.numbers = False
            return
        try:
            if self.mark != "." and pa.types.is_string(values.type):
                values = pc.replace_substring(values, self.mark, ".")
            got = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            self.numbers = False
            return
        if not np.isfinite(got).all():
            self.numbers = False
            return
        self.whole = self.whole and bool((got == np.floor(got)).all())
        self.low, self.high = min(self.low, float(got.min())), max(self.high, float(got.max()))

    def _add_dates(self, texts: list[str]) -> None:
        if self.low < np.inf:  # it began with numbers
            self.dates = {}
        for form, (low, high) in list(self.dates.items()):
            for text in texts:
                found = moment(text, form)
                if found is None or self.clock not in (None, found.clock):
                    del self.dates[form]
                    break
                self.clock, low, high = found.clock, min(low, found.seconds), max(high, found.seconds)
            else:
                self.dates[form] = low, high

    def profile(self) -> Profile:
        different = FEW + 1 if self.many else len(self.values)
        values = () if self.many else tuple(sorted(self.values, key=_order))
        unique = self.all_differ and self.missing == 0 and self.present > FEW
        if not self.present:
            return Profile(self.name, "empty", self.missing, 0, ())
        if self.numbers:
            counts = unique and self.whole and self.high - self.low == self.present - 1
            row = counts or (unique and self.whole and _named_like_a_number(self.name))
            low, high = self.low, self.high
            return Profile(self.name, "number", self.missing, different, values, low, high, self.whole, (), row)
        if self.dates:
            (low, high), forms = next(iter(self.dates.values())), tuple(form for form in self.dates if form is not None)
            forms = () if None in self.dates else forms
            kind: Kind = "time" if self.clock else "date"
            return Profile(self.name, kind, self.missing, different, values, low, high, formats=forms)
        return Profile(self.name, "text", self.missing, different, values, row_number=unique)


def _named_like_a_number(name: str) -> bool:
    words = name.lower().replace("-", "_").replace(" ", "_").split("_")
    return name.endswith("ID") or bool({"id", "index", "key", "uuid", "row", "rownames", "unnamed:"} & set(words))


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by size, then texts by the alphabet."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
