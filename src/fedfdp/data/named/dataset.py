"""Datasets by name, whole and byte-true: from a given folder, the cache, or wherever they can be fetched.

Never hands out content that differs from the published one, and never leaves a half-written file.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data.named import cache as disk
from fedfdp.data.named.catalog import Source, find
from fedfdp.data.named.decode import DAMAGE, Records
from fedfdp.data.named.fetch import FetchError

log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in one pool: x (N, …) and y (N,). The first `official_train` are the published training part.

    `classes` is None for regression. `columns` holds what else is known of each record, such as who holds it.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int | None
    official_train: int | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, kept: NDArray[np.int64]) -> "Dataset":
        """A dataset of these records alone; the published split no longer applies."""
        columns = {name: np.asarray(values)[kept] for name, values in self.columns.items()}
        return Dataset(name=self.name, x=self.x[kept], y=self.y[kept], classes=self.classes, columns=columns)

    def column(self, name: str) -> NDArray[Any]:
        """A column's values; `label` is always one of them."""
        if name in self.columns:
            return np.asarray(self.columns[name])
        if name == "label":
            return self.y.numpy()
        raise SettingError("column", name, f"{self.name} has no such column", nearest(name, [*self.columns, "label"]))


def load(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None, progress: Say | None = None
) -> Dataset:
    """A dataset by name, pixels scaled to [-1, 1]; see `names()` for those known.

    With `folder`, its files are read from there and nowhere else. Without, from the cache ($FEDFDP_DATA, else
    ~/.cache/fedfdp), filled on the first call. `progress` is told each step in a line.
    """
    source = find(name)
    if not source.origins:
        records = _embedded(source)
    elif folder is not None:
        records = read_folder(source, Path(folder))
    else:
        records = _cached(source, disk.file(source.name, cache), progress)
    # The pixels' range becomes [-1, 1] exactly; in place, for the pool is large.
    x = torch.from_numpy(records.x).float().div_(source.brightest / 2).sub_(1)
    y = torch.from_numpy(records.y).long()
    official = source.train if source.train < source.records else None
    return Dataset(name=source.name, x=x, y=y, classes=source.classes, official_train=official)


def get(
    name: str, *, folder: str | Path | None = None, cache: str | Path | None = None, progress: Say | None = None
) -> Path | None:
    """Put a dataset into the cache, from a folder's files or from wherever it can be had; None when none is needed."""
    source = find(name)
    if not source.origins:
        return None
    path = disk.file(source.name, cache)
    if folder is None:
        _cached(source, path, progress)
    else:
        records = read_folder(source, Path(folder))
        with disk.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.alone(path, progress or log.info):
                disk.write(path, records)
    return path


def read_folder(source: Source, folder: Path) -> Records:
    """The dataset's files in this folder or up to three levels below it, in any of its forms."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: give one that holds the files of {source.name}")
    fault = ""
    for place in _folders(folder, levels=3):
        for form in source.forms:
            if (paths := form.locate(place)) is None:
                continue
            try:
                records = form.load(paths)
                found = source.fault(records)
            except DAMAGE as error:
                found = f"damaged ({error})"
            if found is None:
                return records
            fault = fault or f"; {form.title} in {place}: {found}"
    wanted = " or ".join(f"{form.title} ({form.files[0]}, …)" for form in source.forms)
    raise DataError(f"no {source.name} in {folder}: expected {wanted}, unpacked{fault}")


def _folders(top: Path, levels: int) -> Iterator[Path]:
    for place, below, _ in os.walk(top):
        yield Path(place)
        below.sort()
        if len(Path(place).relative_to(top).parts) >= levels:
            below.clear()


def _cached(source: Source, path: Path, progress: Say | None) -> Records:
    records = _checked(source, path, progress)
    if records is None:
        say = progress or log.info
        with disk.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.alone(path, say):
                # Another process may have put it there while this one waited.
                records = _checked(source, path, None)
                if records is None:
                    records = _fetched(source, path, say)
                    disk.write(path, records)
                    say(f"{source.name}: {source.records:,} records, checked, in {path}")
    return records


def _checked(source: Source, path: Path, progress: Say | None) -> Records | None:
    """The cache file's records, or None when it is not there or not whole."""
    if not path.exists():
        return None
    try:
        records = disk.read(path)
        fault = source.fault(records)
    except (OSError, ValueError) as error:
        fault = str(error)
    if fault is None:
        return records
    (progress or log.warning)(f"{path} is not whole ({fault}); getting {source.name} again")
    return None


def _fetched(source: Source, path: Path, say: Say) -> Records:
    tried = []
    for origin in source.origins:
        say(f"{source.name}: trying {origin.title}")
        try:
            with disk.workplace(path) as folder:
                origin.fetch(folder, say)
                return read_folder(source, folder)
        except (FetchError, DataError) as error:
            tried.append(f"{origin.title}: {error}")
            say(f"{source.name}: {tried[-1]}")
    raise DataError(
        f"{source.name} cannot be had. Tried {'; '.join(tried)}. Way out: give its files with "
        f"`fedfdp data get {source.name} --folder DIR`, or use --set data.source=digits, which needs no network"
    )


def _embedded(source: Source) -> Records:
    from sklearn.datasets import load_digits

    digits = load_digits()
    records = Records(digits.images.astype(np.uint8)[:, None], digits.target.astype(np.uint8))
    if fault := source.fault(records):
        raise DataError(f"scikit-learn's {source.name}: {fault}; install the pinned version")
    return records
