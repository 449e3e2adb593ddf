"""The columns of a table as a config declares them: a range of numbers, categories, or dates with a range and cycles.

Nothing here reads a record, and no default takes the place of a fact that was not given.
"""

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TypeGuard

from fedfdp.core.errors import SettingError, nearest, require

Range = tuple[float, float]
PRIVATE = "private"
CYCLES = ("year", "month", "week", "day")  # what a date or time can go round in

_WHOLE = re.compile(r"([+-]?\d{1,18})\.0*", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d(:.*)?", re.ASCII)
_DATE_PARTS = ("%d", "%j", "%m", "%b", "%B", "%y", "%Y", "%x", "%c", "%G", "%U", "%W")
_START = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, scaled from its range to [−1, 1]."""

    name: str
    range: Range | None  # None: it is private and not estimated yet
    within: Range | None = None  # where a private estimate looks; None: any size
    missing: float | None = None  # what takes the place of a missing value; None: no value may be missing
    indicator: bool = False  # one more input: 1 where the value was missing

    @property
    def width(self) -> int:
        return 1 + self.indicator


@dataclass(frozen=True)
class Categorical:
    """A column of names. Each category is one input: 1 where the record has that category, 0 elsewhere."""

    name: str
    categories: tuple[str, ...]
    other: bool = False  # one more input for everything that is not listed
    missing: str | None = None  # the category that takes the place of a missing value; None: none may be missing

    @property
    def width(self) -> int:
        return len(self.categories) + self.other


@dataclass(frozen=True)
class Dated:
    """A column of dates or times, in seconds: its place in a range, and sine and cosine of its place in each cycle."""

    name: str
    range: Range | None  # None: only the cycles are inputs
    cycles: tuple[str, ...] = ()  # of year, month, week, day; two inputs each
    format: str | None = None  # how the file writes it, as strptime takes it; None: 2024-12-31, 2024-12-31 23:59, 23:59
    missing: float | None = None  # what takes the place of a missing value; None: no value may be missing
    indicator: bool = False  # one more input: 1 where the value was missing
    clock: bool = False  # whether it holds times of day

    @property
    def width(self) -> int:
        return (self.range is not None) + 2 * len(self.cycles) + self.indicator


@dataclass(frozen=True)
class Words:
    """A column of text, as token numbers: `length` of them for each record, and a mask that tells padding apart."""

    name: str
    tokenizer: str  # the local folder of a tokenizer, as transformers saves it
    length: int  # longer texts are cut, shorter ones padded: how long texts are is not read from the data


Column = Numeric | Categorical | Dated


def words_in(name: str, spec: object) -> Words | None:
    """The column of text that an entry declares; None if it declares another kind of column."""
    if not isinstance(spec, dict) or "tokenizer" not in spec:
        return None
    setting, fix = f"data.columns.{name}", '{ tokenizer = "FOLDER", length = 64 }'
    if unknown := sorted(set(spec) - {"tokenizer", "length"}):
        raise SettingError(f"{setting}.{unknown[0]}", spec[unknown[0]], "no such setting of a text", fix)
    length, folder = spec.get("length"), spec["tokenizer"]
    whole = isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= 2**16
    require(isinstance(folder, str) and bool(folder), f"{setting}.tokenizer", folder, "a local folder", fix)
    require(whole, f"{setting}.length", length, "tokens of a record, from 1 to 65536", fix)
    assert isinstance(length, int)
    return Words(name, str(folder), length)


def text_of(value: object) -> str:
    """How a category, class or holder is written in a file: `true`, `3`, `north`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def plainest(text: str) -> str:
    """1.0 as 1 and True as true: pandas writes whole numbers and truth values that way."""
    if whole := _WHOLE.fullmatch(text):
        return str(int(whole[1]))
    return text.lower() if text.lower() in ("true", "false") else text


@dataclass(frozen=True)
class Moment:
    """A date in seconds from 1970, or a time of day in seconds from midnight."""

    seconds: float
    clock: bool  # whether it is a time of day


def moment(value: object, form: str | None = None) -> Moment | None:
    """What a text such as 2024-12-31, 2024-12-31 23:59 or 23:59 means, or one in another form; None if nothing.

    An offset such as +02:00 is passed over: what counts is the clock that was read.
    """
    text = value.isoformat() if isinstance(value, date | time) else value
    if not isinstance(text, str):
        return None
    try:
        if form is not None:
            found = datetime.strptime(text, form)
            clock = not any(part in form for part in _DATE_PARTS)
        elif _DATE.fullmatch(text):
            found, clock = datetime.fromisoformat(text), False
        elif _TIME.fullmatch(text):
            found, clock = datetime.combine(_START, time.fromisoformat(text)), True
        else:
            return None
    except ValueError:
        return None
    start = datetime.combine(found, time.min) if clock else _START
    return Moment((found.replace(tzinfo=None) - start).total_seconds(), clock)


def column_of(name: str, spec: object) -> Column:
    """One entry of [data.columns]: a range, a list of categories, "private", or a table with several settings."""
    if spec == PRIVATE:
        return Numeric(name, None)
    if isinstance(spec, list | tuple):
        numbers = len(spec) == 2 and not any(isinstance(value, str | bool) for value in spec)
        if len(spec) == 1 and _is_number(spec[0]):
            raise SettingError(f"data.columns.{name}", spec, "one number is no range", "give [low, high]")
        spec = {"range" if numbers or _dates(spec) else "categories": spec}
    if not isinstance(spec, dict):
        allowed = 'a range [low, high], a list of categories ["a", "b"], or "private"'
        raise SettingError(f"data.columns.{name}", spec, allowed)
    make, known = _numeric, {"range", "within", "missing", "indicator"}
    if "categories" in spec:
        make, known = _categorical, {"categories", "missing", "other"}
    elif "cycles" in spec or "format" in spec or _dates(spec.get("range")):
        make, known = _dated, {"range", "cycles", "format", "missing", "indicator"}
    for key in spec:
        if key not in known:
            others = {*known, "categories", "cycles"}
            raise SettingError(f"data.columns.{name}.{key}", spec[key], f"no such setting; {nearest(key, others)}")
    return make(name, spec)


def _numeric(name: str, spec: dict[str, object]) -> Column:
    place, bounds, within = f"data.columns.{name}", spec.get("range"), spec.get("within")
    missing = spec.get("missing")
    if (bounds is None) == (within is None):
        allowed = "needs a public range = [low, high], or within = [low, high] to estimate one privately inside it"
        raise SettingError(place, spec, allowed)
    given = None if bounds is None or bounds == PRIVATE else range_of(f"{place}.range", bounds)
    inside = None if within is None else range_of(f"{place}.within", within)
    if not (missing is None or _is_number(missing)):
        raise SettingError(f"{place}.missing", missing, "a number", "a public fill-in value")
    return Numeric(name, given, inside, None if missing is None else float(missing), _indicator(place, spec))


def _categorical(name: str, spec: dict[str, object]) -> Column:
    place, listed, other = f"data.columns.{name}", spec["categories"], spec.get("other", False)
    if not (isinstance(listed, list | tuple) and all(isinstance(value, str | int | float) for value in listed)):
        raise SettingError(f"{place}.categories", listed, "a list of names", 'for example ["f", "m"]')
    names = tuple(map(text_of, listed))
    different = len(set(names)) == len(names) >= 1
    require(different, f"{place}.categories", listed, "one or more different names", "list every category once")
    if not isinstance(other, bool):
        raise SettingError(f"{place}.other", other, "true or false")
    missing = None if "missing" not in spec else text_of(spec["missing"])
    fits = missing is None or missing in names or (other and missing == "other")
    require(fits, f"{place}.missing", missing, "one of the categories", "add it to them")
    return Categorical(name, names, other, missing)


def _dated(name: str, spec: dict[str, object]) -> Column:
    place, bounds, cycles, form = f"data.columns.{name}", spec.get("range"), spec.get("cycles", ()), spec.get("format")
    if not (isinstance(cycles, list | tuple) and all(cycle in CYCLES for cycle in cycles)):
        raise SettingError(f"{place}.cycles", cycles, f"a list of some of {', '.join(CYCLES)}", 'for example ["year"]')
    if not (form is None or isinstance(form, str)):
        raise SettingError(f"{place}.format", form, "how dates are written", 'for example "%d.%m.%Y"')
    if bounds is None and not cycles:
        raise SettingError(place, spec, "dates need a public range = [first, last], or cycles", 'cycles = ["year"]')
    if bounds is not None and not _dates(bounds):
        allowed, fix = "two dates or two times, the first before the second", '["2015-01-01", "2024-12-31"]'
        raise SettingError(f"{place}.range", bounds, allowed, f"for example {fix}")
    ends = [found for end in bounds if (found := moment(end))] if isinstance(bounds, list | tuple) else []
    missing = moment(spec.get("missing"))
    if "missing" in spec and missing is None:
        raise SettingError(f"{place}.missing", spec["missing"], "a date or a time", "a public fill-in value")
    clock = ends[0].clock if ends else tuple(cycles) == ("day",)
    if clock and set(cycles) - {"day"}:
        raise SettingError(f"{place}.cycles", cycles, "a time of day goes round in a day only", 'set ["day"]')
    limits = (ends[0].seconds, ends[1].seconds) if ends else None
    filled = missing.seconds if missing else None
    return Dated(name, limits, tuple(cycles), form, filled, _indicator(place, spec), clock)


def _indicator(place: str, spec: dict[str, object]) -> bool:
    indicator = spec.get("indicator", False)
    if not isinstance(indicator, bool):
        raise SettingError(f"{place}.indicator", indicator, "true or false")
    if indicator and "missing" not in spec:
        fix = "give the value that stands in for missing ones"
        raise SettingError(f"{place}.indicator", indicator, "needs missing", fix)
    return indicator


def _dates(spec: object) -> bool:
    """Whether it is a range of dates, or of times: two, and the first is before the second."""
    if not (isinstance(spec, list | tuple) and len(spec) == 2):
        return False
    first, last = map(moment, spec)
    return first is not None and last is not None and first.clock == last.clock and first.seconds < last.seconds


def range_of(place: str, value: object) -> Range:
    """[low, high] as floats, if it is a range."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(_is_number(end) for end in value):
        low, high = float(value[0]), float(value[1])
        if low < high and math.isfinite(high - low):
            return low, high
    raise SettingError(place, value, "[low, high] with low below high", "take both from public knowledge")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
