"""What a data holder should know before training: sizes, classes, missing values, values out of range, duplicates.

It reads private records as they are. What it says, with advice, is for the holder only and is never released.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from fedfdp.data.columns import Categorical, Column, Dated, Numeric, plainest
from fedfdp.data.duplicates import Duplicates, duplicates
from fedfdp.data.federation import Federation
from fedfdp.data.files import dates
from fedfdp.data.files.cells import Place, distinct, numbers
from fedfdp.data.files.discover import sources_of
from fedfdp.data.files.tables import TableSource
from fedfdp.data.schema import Facts
from fedfdp.privacy.accounting import Event, delta_warning, max_count
from fedfdp.privacy.dpsgd import DPSGD

FEW_ROUNDS = 20
MANY_OUTSIDE = 0.01  # of a column beyond its range: more is worth advice
MANY_HOLDERS = 3  # of more, one line speaks for all


@dataclass(frozen=True)
class Holder:
    name: str
    train: int
    test: int
    classes: tuple[int, ...] | None  # training records of each; None for regression
    units: int = 0  # what a batch is drawn from: training records, or the persons in them


@dataclass(frozen=True)
class ColumnReview:
    name: str
    kind: str
    missing: int
    outside: int  # beyond a range, or in none of the listed categories
    records: int


@dataclass(frozen=True)
class Review:
    """All that a check found; `advice` is empty if there is nothing to advise."""

    name: str
    task: str  # what the targets are
    records: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]  # none where a record has not one of them
    holders: tuple[Holder, ...]
    columns: tuple[ColumnReview, ...]
    repeated: int  # records that equal an earlier one of the same holder
    different: int  # different records in all
    shared: tuple[tuple[str, str, int], ...]  # pairs of holders, and how many different records both have
    advice: tuple[str, ...]


def review(
    federation: Federation,
    privacy: DPSGD | None,
    *,
    step: Sequence[Event] = (),
    advice: Sequence[str] = (),
    columns: Sequence[ColumnReview] = (),
    names: Sequence[str] = (),
) -> Review:
    """Of a federation, and of the privacy it is to be trained with, whose every round costs `step`.

    `advice` is what the method itself has to say.
    """
    classed = federation.classes is not None and federation.task.usual
    counts = federation.class_counts().tolist() if classed else [None] * len(federation)
    holders = tuple(
        Holder(client.name, len(client.train), len(client.test), None if count is None else tuple(count), client.size)
        for client, count in zip(federation.clients, counts, strict=True)
    )
    classes = tuple(names) or tuple(map(str, range(federation.classes or 0))) if classed else ()
    equal = duplicates(federation)
    return Review(
        federation.name,
        federation.task.name,
        sum(holder.train + holder.test for holder in holders),
        federation.input_shape,
        classes,
        holders,
        tuple(columns),
        equal.repeated,
        equal.different,
        equal.shared,
        (
            *_sizes(holders, privacy, step),
            *_contents(holders, classes, columns),
            *_sharing(equal),
            *_people(federation),
            *advice,
        ),
    )


def review_columns(facts: Facts, path: Path) -> list[ColumnReview]:
    """Missing values and values outside the public facts, counted over all tables; none for arrays and images."""
    found: dict[str, list[int]] = {}
    kinds: dict[str, str] = {}
    for _, source in sources_of(facts, path, labelled=True):
        if not isinstance(source, TableSource):
            continue
        for column in source.columns:
            kinds[column.name] = _kind(column)
        for batch in source.table.pieces({c.name: isinstance(c, Numeric) for c in source.columns}):
            for column in source.columns:
                place = Place(str(source.path), column.name, missing=facts.missing_texts)
                missing, outside = _off(column, batch.column(column.name), place)
                total = found.setdefault(column.name, [0, 0, 0])
                found[column.name] = [total[0] + missing, total[1] + outside, total[2] + len(batch)]
    return [ColumnReview(name, kinds[name], *numbers) for name, numbers in found.items()]


def _kind(column: Column) -> str:
    if isinstance(column, Categorical):
        return f"{len(column.categories)} categories" + (" and others" if column.other else "")
    if isinstance(column, Dated):
        ends = column.range and (f"{_date(end, column.clock)}" for end in column.range)
        return ", ".join([*([f"[{', '.join(ends)}]"] if ends else []), *column.cycles])
    return "range private" if column.range is None else f"[{column.range[0]:g}, {column.range[1]:g}]"


def _date(seconds: float, clock: bool) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return at.strftime("%H:%M" if clock else "%Y-%m-%d")


def _off(column: Column, values: object, place: Place) -> tuple[int, int]:
    if isinstance(column, Categorical):
        texts, which = distinct(values, place, column.categories)
        listed = [text in column.categories or plainest(text) in column.categories for text in texts]
        unknown = np.array([not known for known in listed] + [False])
        return int((which < 0).sum()), int(unknown[which].sum())
    got = dates.seconds(column, values, place) if isinstance(column, Dated) else numbers(values, place)
    low, high = column.range or (-np.inf, np.inf)
    return int(np.isnan(got).sum()), int(((got < low) | (got > high)).sum())


def _sizes(holders: Sequence[Holder], privacy: DPSGD | None, step: Sequence[Event]) -> list[str]:
    untested = [h for h in holders if not h.test]
    said = _each(untested, lambda h: "has no test records: its accuracy will be unknown", "have no test records")
    if privacy is None:
        return said
    rounds = _rounds(privacy, step)
    if rounds is not None and rounds < FEW_ROUNDS:
        said.append(
            f"privacy.epsilon = {privacy.epsilon:g} pays for {rounds} rounds at q = {privacy.q:g} and "
            f"sigma = {privacy.noise:g}: lower q or raise sigma"
        )
    small = [holder for holder in holders if privacy.q * holder.units < privacy.noise]
    if len(small) > MANY_HOLDERS:
        said.append(_many_too_small(small, len(holders), privacy))
    else:
        said += [f"holder {holder.name!r} is too small: {_too_small(holder, privacy, step)}" for holder in small]
    weak = [(holder, warning) for holder in holders if (warning := delta_warning(privacy.delta, holder.units))]
    if len(weak) > MANY_HOLDERS:
        largest, warning = max(weak, key=lambda pair: pair[0].units)
        said.append(f"{len(weak):,} of {len(holders):,} holders; the largest, {largest.name!r}: {warning}")
    else:
        said += [f"holder {holder.name!r}: {warning}" for holder, warning in weak]
    return said


def _each(holders: Sequence[Holder], one: Callable[[Holder], str], many: str) -> list[str]:
    """A line for each holder, or one line for all of them if they are many."""
    if len(holders) <= MANY_HOLDERS:
        return [f"holder {holder.name!r} {one(holder)}" for holder in holders]
    return [f"{len(holders):,} holders {many}: {_listed(holders)}"]


def _listed(holders: Sequence[Holder]) -> str:
    few = ", ".join(repr(holder.name) for holder in holders[:MANY_HOLDERS])
    return f"{few}, …" if len(holders) > MANY_HOLDERS else few


def _many_too_small(small: Sequence[Holder], all_holders: int, privacy: DPSGD) -> str:
    sizes = sorted(holder.units for holder in small)
    middle, needed = sizes[len(sizes) // 2], privacy.noise / sizes[len(sizes) // 2]
    drawn = "records" if all(holder.units == holder.train for holder in small) else "persons"
    fix = f"half of them need q of at least {needed:.2g}" if needed < 1 else "no q helps half of them"
    return (
        f"{len(small):,} of {all_holders:,} holders are too small by themselves ({sizes[0]:,} to {sizes[-1]:,} "
        f"training {drawn}, the middle one {middle:,}: {_listed(small)}): their batches at q = {privacy.q:g} are "
        f"smaller than the noise of sigma = {privacy.noise:g}; {fix}, or merge some"
    )


def _rounds(privacy: DPSGD, step: Sequence[Event]) -> int | None:
    if privacy.epsilon is None or not step:
        return None
    return max_count(step, privacy.epsilon, privacy.delta, accountant=privacy.accountant)


def _too_small(holder: Holder, privacy: DPSGD, step: Sequence[Event]) -> str:
    """A batch of q·n records has a sum of norm q·n·C at most, and the noise on every weight is σ·C."""
    drawn = "records" if holder.units == holder.train else "persons"
    text = (
        f"{holder.units} training {drawn} at q = {privacy.q:g} make batches of {privacy.q * holder.units:.1f}, and "
        f"noise of sigma = {privacy.noise:g} drowns them"
    )
    needed = privacy.noise / holder.units
    if needed >= 1:
        return f"{text}; no q helps: merge it with another holder or leave it out"
    rounds = _rounds(privacy, [replace(event, q=needed) for event in step])
    pays = "" if rounds is None else f", for which epsilon = {privacy.epsilon:g} pays {rounds} rounds"
    return f"{text}; it takes q of at least {needed:.2g}{pays}, or merge it with another holder"


def _people(federation: Federation) -> list[str]:
    """Whether some persons are at several holders: each protects them separately."""
    unit = federation.clients[0].train.unit
    if unit is None:
        return []
    held = [torch.unique(unit[torch.cat([c.train.index, c.test.index])]) for c in federation.clients]
    several = int((torch.unique(torch.cat(held), return_counts=True)[1] > 1).sum())
    if not several:
        return []
    return [
        f"{several} of {len(torch.unique(torch.cat(held)))} values of {federation.unit!r} are at more than one holder: "
        "for these persons the epsilons of their holders add up"
    ]


def _contents(holders: Sequence[Holder], classes: Sequence[str], columns: Sequence[ColumnReview]) -> list[str]:
    said = []
    for k, name in enumerate(classes):
        if not any(holder.classes and holder.classes[k] for holder in holders):
            said.append(f"class {name!r} occurs at no holder: is it spelt as in the files?")
    for column in columns:
        if column.outside > MANY_OUTSIDE * column.records:
            part = f"{column.outside / column.records:.1%} of column {column.name!r}"
            said.append(
                f"{part} lies outside {column.kind} and is taken as the nearest that fits: correct the public fact "
                f"if it is wrong, but do not fit it to the data; within = [low, high] estimates a range privately"
            )
    return said


def _sharing(found: Duplicates) -> list[str]:
    return [
        f"{count:,} records are at {one!r} and at {other!r}, more than chance explains: each copy is protected only by "
        f"itself; remove one if they are of the same person"
        for one, other, count in found.suspicious[:5]
    ]
