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
from fedfdp.core.trees import Form, Inputs, Leaf, call, grown, is_plain, like, parts_of
from fedfdp.data.predictions import Meaning, meaning, read_inputs
from fedfdp.models.outputs import at_once, unwrapped
from fedfdp.models.pretrained import check_words
from fedfdp.runs import config as configs
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.released import Task, aim_of, form_in, load, task_of

BATCH = 1024


@dataclass(frozen=True)
class Predictions:
    """One entry per record in each column: `class` and `probability`, or `value` (`value_0`, … for several targets).

    Of labels a probability each, `label_NAME`; of places `classes`, the likeliest at each, with spaces between them.
    """

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
    x, means = records_of(folder, Path(file), task, ignore)
    check_words(net, x)
    aim, entry = aim_of(task), task.get("output")
    with torch.inference_mode():
        each = unwrapped(call(net, x[:2]), entry).numel() // min(2, len(x)) if len(x) else 0
        rows = torch.split(torch.arange(len(x)), at_once(BATCH, each)) if len(x) else ()
        parts = [aim.answers(unwrapped(call(net, x[part]), entry)) for part in rows]
    numbers = tuple(map(str, range(task["outputs"])))
    names = means.classes if len(means.classes) == len(numbers) else numbers
    if aim.targets == "places":
        told = torch.cat(parts).flatten(1).tolist() if parts else []
        words = names if all(len(name.split()) == 1 for name in names) else numbers  # so that they can be told apart
        return Predictions({"classes": [" ".join(words[k] for k in places) for places in told]})
    output = torch.cat(parts or [torch.zeros(0, task["outputs"])]).reshape(len(x), task["outputs"])
    if aim.targets == "labels":
        return Predictions({f"label_{n}": p.tolist() for n, p in zip(names, output.sigmoid().T, strict=True)})
    if task["classes"] is None and task["outputs"] > 1:
        return Predictions({f"value_{i}": column.tolist() for i, column in enumerate(output.T)})
    if task["classes"] is None:
        return Predictions({"value": means.of(output) if len(x) else []})
    return Predictions({"class": Meaning(names).of(output), "probability": output.softmax(1).amax(1).tolist()})


def records_of(folder: RunFolder, file: Path, task: Task, ignore: Sequence[str] = ()) -> tuple[Inputs, Meaning]:
    """A file's records as the run's model takes them, and what its outputs mean."""
    settings = folder.config()
    if "data" not in settings:
        return _checked(file, _archive(file, form_in(task)), task), Meaning()
    data = configs.from_dict(settings).data
    for name in ignore:
        if name in (data.columns or {}) and not (name == data.group and data.group_input is False):
            raise SettingError("--ignore", name, "the model was trained on this column", "leave --ignore out")
    data = replace(data, ignore=(*(data.ignore or ()), *ignore) or None)
    return _checked(file, read_inputs(data, data.source, file), task), meaning(data, data.source)


def _archive(file: Path, form: Form) -> Inputs:
    """x of a .npz file as it is, or its several inputs by name, for a run whose records were given in Python."""
    names = ["x" if is_plain(form) else f"arr_{leaf.name}" if leaf.name.isdecimal() else leaf.name for leaf in form]
    if file.suffix != ".npz":
        raise DataError(f"{file}: this run was given its records in Python; give a .npz file with x as it was there")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if missing := next((name for name in names if name not in arrays), None):
                raise DataError(f"{file}: no array {missing}; it has {', '.join(sorted(arrays)) or 'none'}")
            found = [arrays[name] for name in names]
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{file}: not a .npz file: {error}; write it with numpy.savez") from None
    for name, x in zip(names, found, strict=True):
        if x.dtype.kind not in ("fi" if is_plain(form) else "fib"):
            raise DataError(f"{file}: {name} is {x.dtype}; scale it to floats as the training records were")
    parts = [torch.from_numpy(np.ascontiguousarray(x)) for x in found]
    return parts[0] if is_plain(form) else grown((leaf.name, part) for leaf, part in zip(form, parts, strict=True))


def _checked(file: Path, given: Inputs, task: Task) -> Inputs:
    """The inputs in the kinds that the model takes; raises where they are none that it was trained on."""
    form = form_in(task)
    if len(parts_of(given)) != len(form):
        raise DataError(f"{file}: {len(parts_of(given))} inputs, the run has {len(form)}")
    return like(given, [_checked_input(file, x, leaf) for x, leaf in zip(parts_of(given), form, strict=True)])


def _checked_input(file: Path, x: Tensor, leaf: Leaf) -> Tensor:
    tokens, name = leaf.kind != "float32", leaf.name or "x"
    if tuple(x.shape[1:]) != leaf.shape:
        raise DataError(f"{file}: records of shape {tuple(x.shape[1:])}, the run's have {leaf.shape}")
    if x.is_floating_point() == tokens:
        kind = "token numbers" if tokens else "numbers with a fraction"
        raise DataError(f"{file}: {name} is {str(x.dtype).removeprefix('torch.')}, the run was trained on {kind}")
    bad = (~x.isfinite().flatten(1).all(1)).nonzero() if x.dim() > 1 else (~x.isfinite()).nonzero()
    if len(bad):
        raise DataError(f"{file}, row {int(bad[0]) + 1}: NaN or infinity; fill it in or drop the row")
    return x.to(getattr(torch, leaf.kind))
