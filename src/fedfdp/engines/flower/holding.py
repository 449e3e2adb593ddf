"""A node's own records, from what its owner wrote in [data]: a file or a function.

No setting is ignored: one that has no effect on this kind of source is refused.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfdp.core.errors import DataError, SettingError
from fedfdp.core.importing import imported
from fedfdp.data import Federation
from fedfdp.data.columns import plainest, text_of
from fedfdp.data.files.read import read_records
from fedfdp.data.from_files import single_holder
from fedfdp.data.schema import task_of
from fedfdp.engines.flower.policy import NodeData

log = logging.getLogger("fedfdp.node")

TEST_FRACTION = 0.25


@dataclass(frozen=True)
class Holding:
    """The holder's records as a federation of one.

    Where `fraction` is given, all are for training yet: which are for the test is decided once, by the node's folder.
    """

    federation: Federation
    split_given: bool = False  # whether the holder said which are for the test
    fraction: float | None = None  # the part to be held back for the test; None: the federation has its test part
    whom: Sequence[str] | None = None  # the name of the person of each record


def holding_of(name: str, data: NodeData) -> Holding:
    """What is in the owner's file, or what the owner's function gives."""
    if data.file is not None:
        found = read_records(data, Path(data.file), progress=log.info)
        given = found.test is not None
        fraction = _fraction(data, given)
        return Holding(single_holder(found, data, name), given, fraction, found.whom)
    return _loaded(name, data)


def _fraction(data: NodeData, given: bool) -> float | None:
    if given and data.test_fraction is not None:
        fix = "leave it out, or give no test records"
        raise SettingError("data.test_fraction", data.test_fraction, "not allowed beside given test records", fix)
    if given:
        return None
    return TEST_FRACTION if data.test_fraction is None else data.test_fraction


def _loaded(name: str, data: NodeData) -> Holding:
    """What the owner's function gives: (x, y), (x, y, x_test, y_test), or a dict with these names as in an archive.

    The person of each record is under the name that `unit` says, with `_test` added for the test records.
    """
    assert isinstance(data.classes, int | None)
    arrays = _call(data.loader or "")
    if not isinstance(arrays, Mapping):
        arrays = dict(zip(("x", "y", "x_test", "y_test"), _two_or_four(data, list(arrays)), strict=False))
    given = "x_test" in arrays
    parts = ("x", "y", "x_test", "y_test") if given else ("x", "y")
    people = () if data.unit is None else (data.unit, f"{data.unit}_test") if given else (data.unit,)
    for wanted in (*parts, *people):
        if wanted not in arrays:
            setting = "unit" if wanted in people else "loader"
            allowed = f"the loader gives no array {wanted!r}"
            fix = f"return a dict with {', '.join((*parts, *people))}"
            raise SettingError(f"data.{setting}", getattr(data, setting), allowed, fix)
    if unknown := sorted(set(arrays) - {*parts, *people}):
        fix = f"set data.unit = {str(unknown[0])!r} if it names the person of each record, or leave it out"
        raise SettingError("data.loader", data.loader, f"gives {unknown[0]!r}, which has no use", fix)
    fraction, whom = _fraction(data, given), _persons(arrays, dict(zip(people, ("x", "x_test"), strict=False)))
    whole = Federation.from_clients(
        {name: [arrays[part] for part in parts]},
        name=name,
        test_fraction=0.0,
        classes=data.classes,
        units=None if whom is None else {name: whom},
        unit_name=data.unit or "person",
        task=data.task or "",
    )
    labels = (task := task_of(data)) is not None and task.targets == "labels"  # two classes each, whatever occurs
    if data.classes is None and not labels and not np.issubdtype(np.asarray(arrays["y"]).dtype, np.floating):
        allowed = "with whole numbers as labels it must be given: counting them would tell the coordinator of a record"
        raise SettingError("data.classes", "left out", allowed, "set data.classes = 2, or as many as there can be")
    return Holding(whole, given, fraction, whom)


def _persons(arrays: Mapping[str, Any], people: dict[str, str]) -> list[str] | None:
    """The person of each record, written as in a file: 7 and 7.0 are one person, and everyone has a name."""
    if not people:
        return None
    found: list[str] = []
    for key, records in people.items():
        names = [plainest(text_of(value)) for value in np.asarray(arrays[key]).tolist()]
        count = len(arrays[records.replace("x", "y")])  # x may have several inputs
        if len(names) != count:
            raise DataError(f"loader: {count} records in {records!r}, {len(names)} in {key!r}")
        if any(missing in names for missing in ("", "nan", "None")):
            raise DataError(f"loader: some records in {key!r} have no person; every record needs one")
        found += names
    return found


def _two_or_four(data: NodeData, arrays: list[object]) -> list[object]:
    if len(arrays) not in (2, 4):
        raise SettingError("data.loader", data.loader, f"gives {len(arrays)} arrays", "x, y or x, y, x_test, y_test")
    return arrays


def _call(place: str) -> Any:
    load = imported(place, "data.loader")
    try:
        return load()
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError("data.loader", place, f"fails: {error}", "call it by itself to see where") from error
