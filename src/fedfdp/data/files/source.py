"""A source: one file, or one folder of images, as a stream of encoded pieces; the same for every kind of file.

It says how many records there are at most before it reads one, so that the memory for them can be set aside once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedfdp.core.errors import SettingError
from fedfdp.data.columns import PRIVATE, Range, plainest
from fedfdp.data.files import encode
from fedfdp.data.files.cells import Place, distinct, in_words, numbers
from fedfdp.data.schema import Facts, class_names

Numbers = NDArray[np.generic]
Names = tuple[list[str], NDArray[np.int64]]  # the different names, and which of them each record has


@dataclass(frozen=True, eq=False)
class Piece:
    """Some records of a source. What was not asked for, or what the source does not say, is None."""

    x: Numbers | tuple[Numbers, ...]  # inputs; one array for each where a record has several
    y: Numbers | None = None  # targets
    holders: Names | None = None  # who holds each record
    test: NDArray[np.bool_] | None = None  # which records are for the test
    persons: Names | None = None  # whose record each one is
    groups: NDArray[np.int64] | None = None  # which of the declared groups each record belongs to


class Source(Protocol):
    """What every kind of file gives."""

    @property
    def path(self) -> Path: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""

    @property
    def dtype(self) -> type[np.generic]:
        """Of the inputs."""

    def most_rows(self) -> int:
        """At least as many as there are records, known before they are read."""

    def pieces(self) -> Iterator[Piece]:
        """All records, some at a time."""


def targets(facts: Facts, values: pa.Array, place: Place) -> Numbers:
    """Class numbers; or numbers scaled from the target's range to [−1, 1], or unscaled while it is being estimated."""
    if facts.classes is not None:
        return encode.codes(values, class_names(facts), place)
    check_label(facts, place.column)
    got = numbers(values, place)
    if len(bad := np.flatnonzero(np.isnan(got))):
        raise place.error(int(bad[0]), "is empty; fill it in or remove the row")
    bounds = target_range(facts)
    return (got if bounds is None else encode.scaled(got, bounds)).astype(np.float32)


def check_label(facts: Facts, name: str) -> None:
    """Raises unless the config says what may occur in the label."""
    if facts.classes is None and facts.target is None:
        allowed = "what may occur in it has to be public"
        fix = "list the classes in data.classes, or for regression give data.target = [low, high]"
        raise SettingError("data.label", name, allowed, fix)


def label_of(facts: Facts) -> str:
    """The label's name; in an archive it is y unless another one is given."""
    return facts.label or "y"


def target_range(facts: Facts) -> Range | None:
    """The range that the label was scaled from; None for classes, and as long as a private one is not estimated."""
    if facts.target == PRIVATE:
        return facts.estimate.found.get(label_of(facts)) if facts.estimate else None
    return facts.target if isinstance(facts.target, tuple) else None


def names_in(values: pa.Array, place: Place, what: str) -> Names:
    """The holders or persons in a column. 7 and 7.0 are the same: one person must not count as two."""
    texts, which = distinct(values, place)
    if len(bad := np.flatnonzero(which < 0)):
        raise place.error(int(bad[0]), f"{in_words(values[int(bad[0])])}; every row needs its {what}")
    return [plainest(text) for text in texts], which
