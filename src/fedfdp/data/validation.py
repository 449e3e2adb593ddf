"""What a data holder should know before training: sizes, classes, missing values, values out of range, duplicates.

It reads private records as they are. What it says, with advice, is for the holder only and is never released.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedfdp.data.federation import Federation
from fedfdp.data.files import encode
from fedfdp.data.files.discover import sources_of
from fedfdp.data.files.encode import Place
from fedfdp.data.files.tables import TableSource
from fedfdp.data.schema import Categorical, Facts, Numeric, plainest
from fedfdp.privacy.accounting import Event, delta_warning, max_count
from fedfdp.privacy.dpsgd import DPSGD

FEW_ROUNDS = 20
MANY_OUTSIDE = 0.01  # of a column beyond its range: more is worth advice
ROWS = 1 << 16  # hashed at once


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
    records: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    holders: tuple[Holder, ...]
    columns: tuple[ColumnReview, ...]
    repeated: int  # records that equal an earlier one of the same holder
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
    counts = federation.class_counts().tolist() if federation.classes is not None else [None] * len(federation)
    holders = tuple(
        Holder(client.name, len(client.train), len(client.test), None if count is None else tuple(count), client.size)
        for client, count in zip(federation.clients, counts, strict=True)
    )
    classes = tuple(names) or tuple(map(str, range(federation.classes or 0)))
    repeated, shared = duplicates(federation)
    return Review(
        federation.name,
        sum(holder.train + holder.test for holder in holders),
        federation.input_shape,
        classes,
        holders,
        tuple(columns),
        repeated,
        shared,
        (
            *_sizes(holders, privacy, step),
            *_contents(holders, classes, columns),
            *_sharing(shared),
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
                place = Place(str(source.path), column.name)
                missing, outside = _off(column, batch.column(column.name), place)
                total = found.setdefault(column.name, [0, 0, 0])
                found[column.name] = [total[0] + missing, total[1] + outside, total[2] + len(batch)]
    return [ColumnReview(name, kinds[name], *numbers) for name, numbers in found.items()]


def _kind(column: Numeric | Categorical) -> str:
    if isinstance(column, Categorical):
        return f"{len(column.categories)} categories" + (" and others" if column.other else "")
    return "range private" if column.range is None else f"[{column.range[0]:g}, {column.range[1]:g}]"


def _off(column: Numeric | Categorical, values: object, place: Place) -> tuple[int, int]:
    if isinstance(column, Categorical):
        texts, which = encode.distinct(values, place)
        listed = [text in column.categories or plainest(text) in column.categories for text in texts]
        unknown = np.array([not known for known in listed] + [False])
        return int((which < 0).sum()), int(unknown[which].sum())
    got = encode.numbers(values, place)
    low, high = column.range or (-np.inf, np.inf)
    return int(np.isnan(got).sum()), int(((got < low) | (got > high)).sum())


def duplicates(federation: Federation) -> tuple[int, tuple[tuple[str, str, int], ...]]:
    """Records with equal input and label: how many are repeated at one holder, and how many two holders share.

    A record that three holders have counts for two pairs of them.
    """
    owner = np.full(len(federation.x), -1, np.int64)
    for position, client in enumerate(federation.clients):
        owner[client.train.index.numpy()] = position
        owner[client.test.index.numpy()] = position
    kept = np.flatnonzero(owner >= 0)
    keys, owner = _hashes(federation)[kept], owner[kept]
    order = np.lexsort((owner, keys))
    keys, owner = keys[order], owner[order]
    equal, same = keys[1:] == keys[:-1], owner[1:] == owner[:-1]
    across = np.flatnonzero(equal & ~same)
    pairs, counts = np.unique(np.stack([owner[across], owner[across + 1]]), axis=1, return_counts=True)
    names = [client.name for client in federation.clients]
    shared = [(names[a], names[b], int(n)) for a, b, n in zip(*pairs.tolist(), counts.tolist(), strict=True)]
    return int((equal & same).sum()), tuple(sorted(shared, key=lambda pair: -pair[2]))


def _hashes(federation: Federation) -> NDArray[np.uint64]:
    """64 bits per record: equal for equal records; two different ones are equal by a chance of about 1 in 10¹⁹."""
    x, y = federation.x.reshape(len(federation.x), -1), federation.y.reshape(len(federation.y), -1)
    words = [part.contiguous().view(torch.uint8).numpy().view(np.uint32) for part in (x, y) if part.shape[1]]
    rng = np.random.default_rng(0)
    factors = [rng.integers(1, 2**63, part.shape[1], dtype=np.uint64) * 2 + 1 for part in words]
    found = np.empty(len(x), np.uint64)
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        sums = [(part[rows] * factor).sum(axis=1, dtype=np.uint64) for part, factor in zip(words, factors, strict=True)]
        found[rows] = np.sum(sums, axis=0, dtype=np.uint64)
    return found


def _sizes(holders: Sequence[Holder], privacy: DPSGD | None, step: Sequence[Event]) -> list[str]:
    said = [f"holder {h.name!r} has no test records: its accuracy will be unknown" for h in holders if not h.test]
    if privacy is None:
        return said
    rounds = _rounds(privacy, step)
    if rounds is not None and rounds < FEW_ROUNDS:
        said.append(
            f"privacy.epsilon = {privacy.epsilon:g} pays for {rounds} rounds at q = {privacy.q:g} and "
            f"sigma = {privacy.noise:g}: lower q or raise sigma"
        )
    for holder in holders:
        if privacy.q * holder.units < privacy.noise:
            said.append(f"holder {holder.name!r} is too small: {_too_small(holder, privacy, step)}")
        if warning := delta_warning(privacy.delta, holder.units):
            said.append(f"holder {holder.name!r}: {warning}")
    return said


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


def _sharing(shared: Sequence[tuple[str, str, int]]) -> list[str]:
    return [
        f"{count:,} records are at {one!r} and at {other!r}: each copy is protected only by itself; remove one "
        f"if they are of the same person"
        for one, other, count in shared[:5]
    ]
