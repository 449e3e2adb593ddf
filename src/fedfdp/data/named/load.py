"""A dataset by its name: read from a given folder or the cache, or fetched into the cache first.

It never returns content that differs from what was published, and never leaves a half-written file.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from fedfdp.core.errors import DataError
from fedfdp.data.dataset import Dataset
from fedfdp.data.named import cache as disk
from fedfdp.data.named.catalog import find
from fedfdp.data.named.entry import Embedded, Entry
from fedfdp.data.named.layout import DAMAGE, Records
from fedfdp.data.named.origins import FetchError, Say

log = logging.getLogger(__name__)


def load(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None, progress: Say | None = None
) -> Dataset:
    """A dataset by name, with pixels scaled to [-1, 1]; `names()` lists those that are known.

    With `folder`, its files are read from there and nowhere else. Without, it is read from the cache ($FEDFDP_DATA, or
    ~/.cache/fedfdp), which the first call fills. `progress` is told each step in a line.
    """
    entry = find(name)
    if entry.embedded is not None:
        records = _installed(entry, entry.embedded)
    elif folder is not None:
        records = read_folder(entry, Path(folder))
    else:
        records = _cached(entry, disk.file(entry.name, cache), progress)
    # [0, brightest] becomes [-1, 1] exactly. In place, because the pool is large.
    x = torch.from_numpy(records.x).float().div_(entry.brightest / 2).sub_(1)
    y = torch.from_numpy(records.y).long()
    official = entry.train if entry.train < entry.records else None
    return Dataset(name=entry.name, x=x, y=y, classes=entry.classes, official_train=official)


def get(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None, progress: Say | None = None
) -> Path | None:
    """Puts a dataset into the cache, from a folder or from its origins. Returns its file, None if it needs none."""
    entry = find(name)
    if entry.embedded is not None:
        return None
    path = disk.file(entry.name, cache)
    if folder is None:
        _cached(entry, path, progress)
    else:
        records = read_folder(entry, Path(folder))
        with disk.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.alone(path, progress or log.info):
                disk.write(path, records)
    return path


def read_folder(entry: Entry, folder: Path) -> Records:
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


def _cached(entry: Entry, path: Path, progress: Say | None) -> Records:
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


def _checked(entry: Entry, path: Path, progress: Say | None) -> Records | None:
    """The cache file's records; None if it is missing or damaged."""
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


def _fetched(entry: Entry, path: Path, say: Say) -> Records:
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
