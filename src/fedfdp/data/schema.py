"""Facts: what is public about a holder's own records, as a config gives it: columns, ranges, categories, classes.

Nothing here reads a record, and no default takes the place of a fact that was not given.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from fedfdp.core.errors import DataError, SettingError, nearest, require
from fedfdp.data.columns import (
    PRIVATE,
    Categorical,
    Column,
    Numeric,
    Range,
    Words,
    column_of,
    range_of,
    text_of,
    words_in,
)
from fedfdp.models.tasks import Task, find_task
from fedfdp.privacy.accounting import Event

# What counts as "no value" in a table where `missing` does not say otherwise. An empty cell always does.
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NAN", "null", "NULL", "None")


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
    range: Range | None = None  # for arrays: the range of every value in x; of data.inputs, of fractions
    estimate: Estimate | None = None  # how private ranges are estimated; None: by the defaults
    missing: tuple[str, ...] | None = None  # texts that mean "no value" in a table; None: NA, NaN, null and the like
    unlabelled: Literal["skip"] | None = None  # "skip" leaves out a table's rows without a label; None: an error
    decimal: Literal[".", ","] | None = None  # the mark before the decimals in a text file; None: judged by the file
    task: str | None = None  # what the label is, if neither one class nor a number: multi-label, tokens, language, …
    inputs: tuple[str, ...] | None = None  # of an archive: the arrays that a model takes, by the names of its arguments
    group: str | None = None  # a column of categories, as sex: at the test its groups are compared with each other
    group_input: bool | None = None  # whether the model takes that column too; None: yes
    favourable: str | int | bool | None = None  # the class that is good to get, for `group`; None: the last one
    unchecked: tuple[str, ...] | None = None  # columns whose facts were read from these records, which no ε covers

    def __post_init__(self) -> None:
        if self.classes is not None and self.target is not None:
            raise SettingError("data.target", self.target, "given beside data.classes", "classes or a range, not both")
        if isinstance(self.classes, int):
            require(self.classes >= 2, "data.classes", self.classes, "2 or more", "for regression give data.target")
        elif self.classes is not None:
            different = len(set(class_names(self))) == len(self.classes) >= 2
            require(different, "data.classes", self.classes, "two or more different names", "list every class once")
        if self.task is not None:
            self._fits(find_task(self.task, "data.task"))
        if self.inputs is not None:
            named = bool(self.inputs) and all(name.isidentifier() for name in self.inputs)
            require(named, "data.inputs", self.inputs, "names of arguments of the model", 'as ["image", "table"]')
        if isinstance(self.target, tuple):
            range_of("data.target", self.target)
        if self.range is not None:
            range_of("data.range", self.range)
        for name in ("group_input", "favourable") if self.group is None else ():
            given = getattr(self, name)
            require(given is None, f"data.{name}", given, "goes together with data.group", "set data.group too")
        self._columns()
        if len(texts := [name for name, spec in (self.columns or {}).items() if words_in(name, spec)]) > 1:
            raise SettingError(f"data.columns.{texts[1]}", "text", "a record has one text", "join them beforehand")
        if self.unit is not None and self.estimates:
            allowed = "a private range is estimated record by record, which protects no person with several of them"
            raise SettingError("data.unit", self.unit, allowed, "give public ranges instead")

    def _fits(self, task: Task) -> None:
        """Raises unless classes or a range are given as the task has one or the other."""
        if task.targets == "numbers":
            fix = "leave them out; the label's range is data.target"
            require(self.classes is None, "data.classes", self.classes, f"{task.name} has no classes", fix)
        else:
            fix = "leave it out; classes are data.classes"
            require(self.target is None, "data.target", self.target, f"{task.name} has no range", fix)
        read = self.task == "language" and self.words is not None  # from the tokenizer
        known = task.targets != "places" or self.classes is not None or read
        fix = "list them, or give their number: 9 means 0 to 8"
        require(known, "data.classes", None, f"{task.name} needs the classes of a place", fix)

    @property
    def estimates(self) -> bool:
        """Whether some range is private."""
        return self.target == PRIVATE or any(isinstance(c, Numeric) and c.range is None for c in self._columns())

    def _columns(self) -> list[Column]:
        given = (self.columns or {}).items()
        return [column_of(name, spec) for name, spec in given if words_in(name, spec) is None]

    @property
    def categories(self) -> list[Categorical]:
        """The columns of categories."""
        return [column for column in self._columns() if isinstance(column, Categorical)]

    @property
    def words(self) -> Words | None:
        """The column of text, where there is one."""
        return next((words for name, spec in (self.columns or {}).items() if (words := words_in(name, spec))), None)

    @property
    def before(self) -> tuple[Event, ...]:
        """What each holder releases before training: one Gaussian over all its records if a range is private."""
        return (Event(1.0, ((self.estimate or Estimate()).sigma,)),) if self.estimates else ()

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """What means "no value" in a table's cells; an empty cell always does."""
        return MISSING if self.missing is None else ("", *self.missing)


def task_of(facts: Facts) -> Task | None:
    """What the label is, where that is declared."""
    return None if facts.task is None else find_task(facts.task, "data.task")


def class_names(facts: Facts) -> tuple[str, ...]:
    """The classes as they are written in a file, in the order of the model's outputs."""
    if facts.classes is None:
        return ()
    known = range(facts.classes) if isinstance(facts.classes, int) else facts.classes
    return tuple(map(text_of, known))


def group_of(facts: Facts) -> Categorical | None:
    """The column whose groups are compared, where one is declared."""
    if facts.group is None:
        return None
    declared = {column.name: column for column in facts.categories}
    if facts.group not in declared:
        known = nearest(facts.group, declared) if declared else "none is declared"
        fix = "list its categories in [data.columns]; data.group_input = false keeps it out of the model"
        raise SettingError("data.group", facts.group, f"no such column with categories; {known}", fix)
    return declared[facts.group]


def favourable_of(facts: Facts, names: tuple[str, ...]) -> int:
    """The number of the class that is good to get, among classes of these names."""
    if not names:
        allowed = "groups are compared by how often they get a class, and there are none here"
        raise SettingError("data.group", facts.group, allowed, "leave it out")
    if facts.favourable is None:
        return len(names) - 1
    if (wanted := text_of(facts.favourable)) not in names:
        raise SettingError("data.favourable", facts.favourable, f"no such class; {nearest(wanted, names)}")
    return names.index(wanted)


def columns_of(facts: Facts, names: list[str], file: str, *, trained: bool = False) -> list[Column]:
    """The inputs among a file's columns, in the order of the config. Every column of the file must be named there.

    An entry may be a pattern (`"mean *"`). Its columns come in alphabetical order, whatever their order in the file.
    `trained`: the file is for a model that was trained already, so an error does not advise to change the config.
    """
    given, known = facts.columns or {}, set(names)
    if facts.label is not None and facts.label in given:
        allowed = "it is data.label: as an input it would give away the answer"
        raise SettingError(f"data.columns.{facts.label}", given[facts.label], allowed, "leave it out of [data.columns]")
    held_out = facts.group if facts.group_input is False else None
    named = {name for name in (facts.holder, facts.label, facts.test, facts.unit, held_out) if name is not None}
    aside = named | set(facts.ignore or ()) | set(given)
    found: list[Column] = []
    taken: set[str] = set()
    for entry, spec in given.items():
        if entry == held_out:
            continue
        matching = sorted(name for name in known - aside - taken if fnmatchcase(name, entry))
        if entry not in known and not matching:
            why = "which the model takes" if trained else "as data.columns says"
            raise DataError(f"{file}: no column {entry!r}{',' if trained else ''} {why}; {nearest(entry, known)}")
        for name in [entry] if entry in known else matching:
            taken.add(name)
            if words_in(name, spec) is None:
                found.append(column_of(name, spec))
    for name in names:
        if name not in taken | named | set(facts.ignore or ()):
            if trained:
                fix = f"remove it from the file, or leave it out with --ignore {name!r}"
                raise DataError(f"{file}, column {name!r}: the model was trained without it; {fix}")
            raise DataError(
                f"{file}, column {name!r}: neither a range nor categories are given; a range read from the data would "
                f"not be private: add {name!r} = [low, high] from public knowledge to [data.columns], or "
                f'{name!r} = "private" to have it estimated under privacy, or list it in data.ignore'
            )
    if not found and facts.words is None:
        raise DataError(f"{file}: no column is left to learn from; name some in [data.columns]")
    return found
