"""A dataset by its name: read from a given folder or the cache, or fetched into the cache first.

It never returns content that differs from what was published, and never leaves a half-written file.
"""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedfdp.core.errors import DataError
from fedfdp.data.dataset import Dataset
from fedfdp.data.files.read import read_records
from fedfdp.data.named import cache as disk
from fedfdp.data.named.catalog import find
from fedfdp.data.named.entry import Content, Embedded, Entry, Images, Made, Table
from fedfdp.data.named.layout import DAMAGE, Records, Rows
from fedfdp.data.named.origins import FetchError, Say
from fedfdp.data.schema import Facts, favourable_of
from fedfdp.fairness.metrics.groups import Groups

log = logging.getLogger(__name__)


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    cache: str | Path | None = None,
    progress: Say | None = None,
    asked: Facts | None = None,
) -> Dataset:
    """A dataset by name, with every input scaled to [-1, 1]; `names()` lists those that are known.

    With `folder`, its files are read from there and nowhere else. Without, it is read from the cache ($FEDFDP_DATA, or
    ~/.cache/fedfdp), which the first call fills. `progress` is told each step in a line. Of `asked`, `group`,
    `group_input` and `favourable` are used: which column's groups are to be compared.
    """
    entry = find(name)
    content = _content(entry, folder, cache, progress)
    if isinstance(entry, Table) and isinstance(content, Rows):
        return _table(entry, content, entry.read_as(asked))
    if not (isinstance(entry, Images) and isinstance(content, Records)):
        raise TypeError(f"{entry.name}: {type(entry).__name__} of {type(content).__name__}")
    # [0, brightest] becomes [-1, 1] exactly. In place, because the pool is large.
    x = torch.from_numpy(content.x).float().div_(entry.brightest / 2).sub_(1)
    y = torch.from_numpy(content.y).long()
    official = entry.train if entry.train < entry.records else None
    columns = {column: values() for column, values in entry.columns.items()}
    found = Dataset(entry.name, x, y, entry.classes, official_train=official, columns=columns, class_names=entry.labels)
    if asked is None or asked.group is None:
        return found
    names, of = np.unique(found.column(asked.group, "data.group"), return_inverse=True)
    called = tuple(map(str, names.tolist()))
    groups = Groups(asked.group, called, of.astype(np.int64), favourable_of(asked, entry.labels))
    return replace(found, groups=groups)


def _table(entry: Table, rows: Rows, facts: Facts) -> Dataset:
    """The table read as a file of your own would be, by its public facts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{entry.name}{entry.ending}"
        path.write_bytes(rows.text)
        found = read_records(facts, path)
    columns = {}
    if found.holders is not None and found.owner is not None:
        columns = {str(facts.holder): np.array(found.holders)[found.owner]}
    classes, names = found.classes, entry.labels
    return Dataset(entry.name, found.x, found.y, classes, columns=columns, class_names=names, groups=found.groups)


def get(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None, progress: Say | None = None
) -> Path | None:
    """Puts a dataset into the cache, from a folder or from its origins. Returns its file, None if it needs none."""
    entry = find(name)
    if entry.embedded is not None:
        return None
    path = disk.file(entry, cache)
    if folder is None:
        _cached(entry, path, progress)
    else:
        content = _content(entry, folder, cache, progress)
        with disk.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.alone(path, progress or log.info):
                disk.write(path, content)
    return path


def _content(entry: Entry, folder: str | Path | None, cache: str | Path | None, progress: Say | None) -> Content:
    if entry.embedded is not None:
        return _installed(entry, entry.embedded)
    if folder is None:
        return _cached(entry, disk.file(entry, cache), progress)
    if entry.made is not None:
        return _made(entry, entry.made, [_content(find(part), folder, cache, progress) for part in entry.made.parts])
    return read_folder(entry, Path(folder))


def _made(entry: Entry, made: Made, parts: Sequence[Content]) -> Records:
    records = made.make(*parts)
    if fault := entry.fault(records):
        raise DataError(f"{entry.name}, made from {' and '.join(made.parts)}: {fault}")
    return records


def read_folder(entry: Entry, folder: Path) -> Content:
    """The dataset from its files in this folder or up to three levels below it, in any of its layouts."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: give one that holds the files of {entry.name}")
    fault = ""
    for place in _folders(folder, levels=3):
        for layout in entry.layouts:
            if (paths := layout.locate(place)) is None:
                continue
            try:
                records = layout.load(paths)
                found = entry.fault(records)
            except DAMAGE as error:
                found = f"damaged ({error})"
            if found is None:
                return records
            fault = fault or f"; {layout.title} in {place}: {found}"
    wanted = " or ".join(f"{layout.title} ({layout.files[0]}, …)" for layout in entry.layouts)
    raise DataError(f"no {entry.name} in {folder}: expected {wanted}, unpacked{fault}")


def _folders(top: Path, levels: int) -> Iterator[Path]:
    for place, below, _ in os.walk(top):
        yield Path(place)
        below.sort()
        if len(Path(place).relative_to(top).parts) >= levels:
            below.clear()


def _cached(entry: Entry, path: Path, progress: Say | None) -> Content:
    records = _checked(entry, path, progress)
    if records is None:
        say = progress or log.info
        with disk.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.alone(path, say):
                # Another process may have put it there while this one waited.
                records = _checked(entry, path, None)
                if records is None:
                    records = _fetched(entry, path, say)
                    disk.write(path, records)
                    say(f"{entry.name}: {entry.records:,} records, checked, in {path}")
    return records


def _checked(entry: Entry, path: Path, progress: Say | None) -> Content | None:
    """What the cache file holds; None if it is missing or damaged."""
    if not path.exists():
        return None
    try:
        records = disk.read(path)
        fault = entry.fault(records)
    except (OSError, ValueError) as error:
        fault = str(error)
    if fault is None:
        return records
    (progress or log.warning)(f"{path} is not whole ({fault}); getting {entry.name} again")
    return None


def _fetched(entry: Entry, path: Path, say: Say) -> Content:
    if entry.made is not None:
        say(f"{entry.name}: making it from {' and '.join(entry.made.parts)}")
        return _made(entry, entry.made, [_content(find(part), None, path.parent, say) for part in entry.made.parts])
    tried = []
    for origin in entry.origins:
        say(f"{entry.name}: trying {origin.title}")
        try:
            with disk.workplace(path) as folder:
                origin.fetch(folder, say)
                return read_folder(entry, folder)
        except (FetchError, DataError) as error:
            tried.append(f"{origin.title}: {error}")
            say(f"{entry.name}: {tried[-1]}")
    raise DataError(
        f"{entry.name} cannot be had. Tried {'; '.join(tried)}. Way out: give its files with "
        f"`fedfdp data get {entry.name} --folder DIR`, or use --set data.source=digits, which needs no network"
    )


def _installed(entry: Entry, embedded: Embedded) -> Records:
    records = embedded.read()
    if fault := entry.fault(records):
        raise DataError(f"{embedded.package}'s {entry.name}: {fault}; install the pinned version")
    return records
