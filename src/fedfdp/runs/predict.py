"""What a run's model predicts for new records: a class with its probability, or a value in the target's own units.

New records are only read: nothing of them is kept, and predicting costs no privacy.
"""

import csv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.predictions import Meaning, meaning, read_inputs
from fedfdp.runs import config as configs
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.released import Task, load, task_of

BATCH = 1024


@dataclass(frozen=True)
class Predictions:
    """One entry per record in each column: `class` and `probability`, or `value` (`value_0`, … for several targets)."""

    columns: dict[str, Sequence[str | float]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[dict[str, str | float]]:
        """The predictions in the order of the file's records."""
        for entries in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, entries, strict=True))

    def write(self, out: TextIO) -> None:
        """As CSV; rows count from 1."""
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["row", *self.columns])
        writer.writerows([i, *row.values()] for i, row in enumerate(self.rows(), start=1))


def predict(
    run: str | Path,
    file: str | Path,
    model: nn.Module | None = None,
    *,
    holder: str | None = None,
    ignore: Sequence[str] = (),
) -> Predictions:
    """Applies the run's model, or a holder's own, to a file like those that it was trained on, labels or not.

    `ignore` names columns of a table that the model was trained without.
    """
    folder = RunFolder.find(Path(run))
    task, net = task_of(folder), load(run, model, holder=holder)
    x, means = _inputs(folder, Path(file), ignore)
    _check(Path(file), x, task)
    x = x.long() if task["tokens"] else x.float()
    with torch.inference_mode():
        parts = [net(part) for part in torch.split(x, BATCH)] if len(x) else [torch.zeros(0, task["outputs"])]
    output = torch.cat(parts).reshape(len(x), task["outputs"])
    if task["classes"] is None and task["outputs"] > 1:
        return Predictions({f"value_{i}": column.tolist() for i, column in enumerate(output.T)})
    if task["classes"] is None:
        return Predictions({"value": means.of(output) if len(x) else []})
    named = means if means.classes else Meaning(tuple(map(str, range(task["classes"]))))
    return Predictions({"class": named.of(output), "probability": output.softmax(1).amax(1).tolist()})


def _inputs(folder: RunFolder, file: Path, ignore: Sequence[str]) -> tuple[Tensor, Meaning]:
    """A file's records as the model takes them, and what its outputs mean."""
    settings = folder.config()
    if "data" not in settings:
        return _archive(file), Meaning()
    data = configs.from_dict(settings).data
    for name in ignore:
        if name in (data.columns or {}):
            raise SettingError("--ignore", name, "the model was trained on this column", "leave --ignore out")
    data = replace(data, ignore=(*(data.ignore or ()), *ignore) or None)
    return read_inputs(data, data.source, file), meaning(data, data.source)


def _archive(file: Path) -> Tensor:
    """x of a .npz file as it is, for a run whose records were given in Python."""
    if file.suffix != ".npz":
        raise DataError(f"{file}: this run was given its records in Python; give a .npz file with x as it was there")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if "x" not in arrays:
                raise DataError(f"{file}: no array x; it has {', '.join(sorted(arrays)) or 'none'}")
            x = arrays["x"]
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{file}: not a .npz file: {error}; write it with numpy.savez") from None
    if x.dtype.kind not in "fi":
        raise DataError(f"{file}: x is {x.dtype}; scale it to floats as the training records were")
    return torch.from_numpy(np.ascontiguousarray(x))


def _check(file: Path, x: Tensor, task: Task) -> None:
    shape = tuple(task["input_shape"])
    if tuple(x.shape[1:]) != shape:
        raise DataError(f"{file}: records of shape {tuple(x.shape[1:])}, the run's have {shape}")
    if x.is_floating_point() == task["tokens"]:
        kind = "token numbers" if task["tokens"] else "numbers with a fraction"
        raise DataError(f"{file}: x is {str(x.dtype).removeprefix('torch.')}, the run was trained on {kind}")
    bad = (~x.isfinite().flatten(1).all(1)).nonzero() if x.dim() > 1 else (~x.isfinite()).nonzero()
    if len(bad):
        raise DataError(f"{file}, row {int(bad[0]) + 1}: NaN or infinity; fill it in or drop the row")
