"""Facts: what is public about a holder's own records, as a config gives it: columns, ranges, categories, classes.

Nothing here reads a record, and no default takes the place of a fact that was not given.
"""

import math
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeGuard

from fedfdp.core.errors import DataError, SettingError, nearest, require
from fedfdp.privacy.accounting import Event

Range = tuple[float, float]
PRIVATE = "private"

_WHOLE = re.compile(r"([+-]?\d{1,18})\.0*", re.ASCII)


@dataclass(frozen=True)
class Estimate:
    """How ranges are estimated privately: each holder releases noised counts once, charged to its ledger."""

    sigma: float = 10.0  # noise multiplier of the one release that all private columns share
    tail: float = 0.01  # the part of the records that may lie outside, on each side
    found: dict[str, Range] = field(default_factory=dict)  # what a run found; it writes this, and reads it on resuming
    found_with: float = 0.0  # the sigma that they were found with, which decides what they cost

    def __post_init__(self) -> None:
        require(1e-3 <= self.sigma <= 1e6, "data.estimate.sigma", self.sigma, "from 1e-3 to 1e6", "10 is usual")
        require(0 <= self.tail < 0.5, "data.estimate.tail", self.tail, "at least 0 and below 0.5", "0.01 is usual")
        paid = not self.found or self.found_with == self.sigma
        allowed = f"data.estimate.found was found with sigma = {self.found_with:g}, and costs what that costs"
        require(paid, "data.estimate.sigma", self.sigma, allowed, "set it back, or leave found and found_with out")


@dataclass(frozen=True)
class Facts:
    """The part of [data] that says what is in your own files; a dataset by name needs none of it."""

    holder: str | None = None  # the column that says who holds a row
    label: str | None = None  # the column to be predicted
    unit: str | None = None  # the column that says whose row it is: all rows of a person are then protected together
    classes: int | tuple[str | int | bool, ...] | None = None  # all that may occur; a number n means 0 to n − 1
    target: Range | Literal["private"] | None = None  # instead of classes, for regression: the label's range
    test: str | None = None  # the column that says which rows are for the test
    columns: dict[str, object] | None = None  # of a table: each column's range or categories
    ignore: tuple[str, ...] | None = None  # columns of a table that are not read
    range: Range | None = None  # for arrays: the range of every value in x
    estimate: Estimate | None = None  # how private ranges are estimated; None: by the defaults

    def __post_init__(self) -> None:
        if self.classes is not None and self.target is not None:
            raise SettingError("data.target", self.target, "given beside data.classes", "classes or a range, not both")
        if isinstance(self.classes, int):
            require(self.classes >= 2, "data.classes", self.classes, "2 or more", "for regression give data.target")
        elif self.classes is not None:
            different = len(set(class_names(self))) == len(self.classes) >= 2
            require(different, "data.classes", self.classes, "two or more different names", "list every class once")
        if isinstance(self.target, tuple):
            _range_of("data.target", self.target)
        if self.range is not None:
            _range_of("data.range", self.range)
        for name, spec in (self.columns or {}).items():
            column_of(name, spec)
        if self.unit is not None and self.estimates:
            allowed = "a private range is estimated record by record, which protects no person with several of them"
            raise SettingError("data.unit", self.unit, allowed, "give public ranges instead")

    @property
    def estimates(self) -> bool:
        """Whether some range is private."""
        entries = (column_of(name, spec) for name, spec in (self.columns or {}).items())
        return self.target == PRIVATE or any(isinstance(c, Numeric) and c.range is None for c in entries)

    @property
    def before(self) -> tuple[Event, ...]:
        """What each holder releases before training: one Gaussian over all its records if a range is private."""
        return (Event(1.0, ((self.estimate or Estimate()).sigma,)),) if self.estimates else ()


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


Column = Numeric | Categorical


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


def class_names(facts: Facts) -> tuple[str, ...]:
    """The classes as they are written in a file, in the order of the model's outputs."""
    if facts.classes is None:
        return ()
    known = range(facts.classes) if isinstance(facts.classes, int) else facts.classes
    return tuple(map(text_of, known))


def column_of(name: str, spec: object) -> Column:
    """One entry of [data.columns]: a range, a list of categories, "private", or a table with several settings."""
    if spec == PRIVATE:
        return Numeric(name, None)
    if isinstance(spec, list | tuple):
        numbers = len(spec) == 2 and not any(isinstance(value, str | bool) for value in spec)
        spec = {"range" if numbers else "categories": spec}
    if not isinstance(spec, dict):
        allowed = 'a range [low, high], a list of categories ["a", "b"], or "private"'
        raise SettingError(f"data.columns.{name}", spec, allowed)
    known = (
        {"range", "within", "missing", "indicator"} if "categories" not in spec else {"categories", "missing", "other"}
    )
    for key in spec:
        if key not in known:
            raise SettingError(f"data.columns.{name}.{key}", spec[key], f"no such setting; {nearest(key, known)}")
    return _categorical(name, spec) if "categories" in spec else _numeric(name, spec)


def columns_of(facts: Facts, names: list[str], file: str) -> list[Column]:
    """The inputs among a file's columns, in the order of the config. Every column of the file must be named there.

    An entry may be a pattern (`"mean *"`). Its columns come in alphabetical order, whatever their order in the file.
    """
    given, known = facts.columns or {}, set(names)
    if facts.label is not None and facts.label in given:
        allowed = "it is data.label: as an input it would give away the answer"
        raise SettingError(f"data.columns.{facts.label}", given[facts.label], allowed, "leave it out of [data.columns]")
    named = {column for column in (facts.holder, facts.label, facts.test, facts.unit) if column is not None}
    aside = named | set(facts.ignore or ()) | set(given)
    found: list[Column] = []
    taken: set[str] = set()
    for entry, spec in given.items():
        matching = sorted(name for name in known - aside - taken if fnmatchcase(name, entry))
        if entry not in known and not matching:
            raise DataError(f"{file}: no column {entry!r} as data.columns says; {nearest(entry, known)}")
        for name in [entry] if entry in known else matching:
            taken.add(name)
            found.append(column_of(name, spec))
    for name in names:
        if name not in taken | named | set(facts.ignore or ()):
            raise DataError(
                f"{file}, column {name!r}: neither a range nor categories are given; a range read from the data would "
                f"not be private: add {name!r} = [low, high] from public knowledge to [data.columns], or "
                f'{name!r} = "private" to have it estimated under privacy, or list it in data.ignore'
            )
    if not found:
        raise DataError(f"{file}: no column is left to learn from; name some in [data.columns]")
    return found


def _numeric(name: str, spec: dict[str, object]) -> Numeric:
    place, bounds, within = f"data.columns.{name}", spec.get("range"), spec.get("within")
    missing, indicator = spec.get("missing"), spec.get("indicator", False)
    if (bounds is None) == (within is None):
        allowed = "needs a public range = [low, high], or within = [low, high] to estimate one privately inside it"
        raise SettingError(place, spec, allowed)
    given = None if bounds is None or bounds == PRIVATE else _range_of(f"{place}.range", bounds)
    inside = None if within is None else _range_of(f"{place}.within", within)
    if not (missing is None or _is_number(missing)):
        raise SettingError(f"{place}.missing", missing, "a number", "a public fill-in value")
    if not isinstance(indicator, bool):
        raise SettingError(f"{place}.indicator", indicator, "true or false")
    if indicator and missing is None:
        fix = "give the value that stands in for missing ones"
        raise SettingError(f"{place}.indicator", indicator, "needs missing", fix)
    return Numeric(name, given, inside, None if missing is None else float(missing), indicator)


def _categorical(name: str, spec: dict[str, object]) -> Categorical:
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


def _range_of(place: str, value: object) -> Range:
    """[low, high] as floats, if it is a range."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(_is_number(end) for end in value):
        low, high = float(value[0]), float(value[1])
        if low < high and math.isfinite(high - low):
            return low, high
    raise SettingError(place, value, "[low, high] with low below high", "take both from public knowledge")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
