"""Arrays, tensors and torch Datasets that clients are given as, turned into checked tensors.

Records that cannot be trained on raise an error that names the client and the row. Only dtypes are converted: no value
is changed, dropped or filled in.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fedfdp.core.errors import DataError
from fedfdp.core.trees import Inputs, Tree, as_tree, form_of, grown, parts_of
from fedfdp.models.losses import IGNORED
from fedfdp.models.tasks import Task

Holder: TypeAlias = tuple[str, NDArray[np.int64], NDArray[np.int64]]  # its name, its train and its test records


def pairs_of(client: str, given: object) -> list[tuple[object, object]]:
    """A client's records: one pair (x, y), or one for training and one for the test."""
    datasets = [given] if isinstance(given, Dataset) else given
    if isinstance(datasets, Sequence) and datasets and all(isinstance(each, Dataset) for each in datasets):
        if len(datasets) <= 2:
            return [_read(client, each) for each in datasets]
    elif isinstance(given, Sequence | np.ndarray | Tensor) and len(given) in (2, 4):
        return list(zip(given[::2], given[1::2], strict=True))
    raise DataError(
        f"client {client!r}: give (x, y), (x_train, y_train, x_test, y_test), a torch Dataset of (x, y), or two of them"
    )


def _read(client: str, dataset: "Dataset[object]") -> tuple[object, Tensor]:
    """Every item of a map-style torch Dataset, read once."""
    if not hasattr(dataset, "__len__") or isinstance(dataset, IterableDataset):
        raise DataError(f"client {client!r}: {type(dataset).__name__} has no length; only map-style Datasets are read")
    xs: dict[str, list[Tensor]] = {}
    ys: list[Tensor] = []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise DataError(f"client {client!r}: item {i} of its Dataset is no pair (x, y)")
        for name, value in named if isinstance(named := as_tree(item[0]), list) else [("", named)]:
            xs.setdefault(name, []).append(
                _tensor(client, f"x {name!r} of item {i}" if name else f"x of item {i}", value)
            )
        ys.append(_tensor(client, f"y of item {i}", item[1]))
    if not xs:
        raise DataError(f"client {client!r}: its Dataset has no items; leave it out")
    try:
        found = {name: torch.stack(values) for name, values in xs.items()}
        return found.get("", found), torch.stack(ys)
    except RuntimeError:
        raise DataError(f"client {client!r}: the items of its Dataset differ in shape; make them alike") from None


def as_inputs(client: str, values: object, like: Inputs | None) -> Inputs:
    """A client's inputs as float32, or as int64 if they are token numbers; their form must be that of `like`.

    A tuple or a dict of arrays is a record with several inputs, of which those of yes and no may be a mask.
    """
    named = as_tree(values)
    if not isinstance(named, list):
        x: Inputs = _as_input(client, "x", values)
    elif not named:
        raise DataError(f"client {client!r}: x has no inputs; give a tuple or a dict of arrays")
    else:
        if bad := next((n for n, _ in named if not n.isdecimal() and not n.isidentifier()), None):
            raise DataError(f"client {client!r}: input {bad!r} cannot be an argument of a model; rename it")
        if isinstance(like, Tree) and sorted(first := like.names or ()) == sorted(name for name, _ in named):
            named.sort(key=lambda part: first.index(part[0]))
        try:
            x = grown((name, _as_input(client, f"x[{name!r}]", value, mask=True)) for name, value in named)
        except DataError as error:
            raise DataError(str(error) if str(error).startswith("client") else f"client {client!r}: {error}") from None
    if like is not None and isinstance(x, Tensor) and isinstance(like, Tensor):
        if x.shape[1:] != like.shape[1:]:
            shapes = f"records of shape {tuple(x.shape[1:])}, the first client's are {tuple(like.shape[1:])}"
            raise DataError(f"client {client!r}: {shapes}")
        if x.dtype != like.dtype:
            raise DataError(f"client {client!r}: x is {_name(x)}, the first client's is {_name(like)}")
    elif like is not None and form_of(x) != form_of(like):
        raise DataError(f"client {client!r}: its inputs are {in_words(x)}, the first client's {in_words(like)}")
    return x


def in_words(x: Inputs) -> str:
    """The inputs of a record, as an error shows them."""
    return ", ".join(f"{leaf.name or 'x'} {leaf.kind} {leaf.shape}" for leaf in form_of(x))


def _as_input(client: str, what: str, values: object, *, mask: bool = False) -> Tensor:
    x = _tensor(client, what, values)
    if x.dim() == 0:
        raise DataError(f"client {client!r}: {what} is a single number; records go along its first axis")
    if mask and x.dtype == torch.bool:
        return x
    if x.dtype in (torch.uint8, torch.bool):
        raise DataError(f"client {client!r}: {what} is {_name(x)}; scale it to floats first, for example x / 127.5 - 1")
    return x.float() if x.is_floating_point() else x.long()


def as_targets(
    client: str, values: object, *, records: int, classes: int | None, like: Tensor | None, task: Task | None = None
) -> Tensor:
    """A client's targets: class numbers as int64, or float32 for regression and labels; `task` if it is declared."""
    y = _tensor(client, "y", values)
    if y.dim() == 0 or len(y) != records:
        raise DataError(f"client {client!r}: {records} records in x, {len(y) if y.dim() else 1} in y")
    y = for_task(f"client {client!r}: y", y, classes, task)
    if like is not None and (y.dtype != like.dtype or y.shape[1:] != like.shape[1:]):
        raise DataError(
            f"client {client!r}: y is {_name(y)} {tuple(y.shape[1:])}, the first client's is "
            f"{_name(like)} {tuple(like.shape[1:])}"
        )
    return y


def for_task(y_of: str, y: Tensor, classes: int | None, task: Task | None) -> Tensor:
    """Targets in the kind that their task has; a DataError that begins with `y_of` if they cannot be that."""
    numbers = task is not None and task.targets in ("numbers", "labels")
    if (classes is not None or task is not None) and y.is_floating_point() and not numbers:
        many = f"{classes} classes need whole numbers 0 to {classes - 1}" if classes else "classes need whole numbers"
        raise DataError(f"{y_of} is {_name(y)}; {many}")
    labels = y.dim() == 2 and bool(((y == 0) | (y == 1)).all())
    y = y.float() if y.is_floating_point() or numbers else y.long()
    if task is not None and task.targets == "labels" and not labels:
        raise DataError(f"{y_of} has shape {tuple(y.shape)}; {task.name} needs a 0 or 1 for each label")
    if task is not None and task.targets == "places" and y.dim() < 2:
        raise DataError(f"{y_of} has shape {tuple(y.shape)}; {task.name} needs a class for every place")
    if (task is None or task.targets == "class") and not y.is_floating_point() and y.dim() != 1:
        raise DataError(
            f"{y_of} has shape {tuple(y.shape)}; class numbers need one for each record, unless task "
            "says what more of them are: multi-label, tokens, language or segmentation"
        )
    return y


def check_records(
    x: Inputs,
    y: Tensor,
    classes: int | None,
    names: Sequence[str],
    sizes: NDArray[np.int64],
    clients: Iterable[Holder],
    task: Task,
) -> None:
    """Raises a DataError for the first fault. `sizes` are numbers of training records; `clients` come one at a time."""
    if not names:
        raise DataError("a federation needs at least one client")
    for place in np.flatnonzero(sizes == 0).tolist():
        raise DataError(f"client {names[place]!r} has no training records; give it some or leave it out")
    if len(set(names)) < len(names):
        raise DataError("two clients have the same name; names must differ")
    if len(x) != len(y):
        raise DataError(f"{len(x)} records in x, {len(y)} in y")
    if classes is not None and task.targets != "labels" and (y.is_floating_point() or y.is_complex()):
        raise DataError(f"y is {_name(y)}; {classes} classes need whole numbers 0 to {classes - 1}")
    if task.targets == "places" and y.shape[1] <= task.first:
        allowed = f"{task.name} tells each place by those before it, and needs {task.first + 1} or more"
        raise DataError(f"records of length {y.shape[1]}; {allowed}: make the length of records, or of a text, larger")
    for what, values in (*(("x", part) for part in parts_of(x)), ("y", y)):
        # If any value is NaN or infinite, the smallest or the largest is: one pass, no copy.
        if values.is_floating_point() and values.numel() and not torch.stack(torch.aminmax(values)).isfinite().all():
            name, row, _ = _first(~values.isfinite().reshape(len(values), -1).all(1), clients)
            raise DataError(f"client {name!r}: {row} of {what} holds NaN or infinity; fill it in or drop the row")
    if classes is not None and len(y) and (y.min() < 0 or y.max() >= classes):
        bad = (y < 0) | (y >= classes)
        if task.targets == "places":
            bad = (bad & (y != IGNORED)).flatten(1).any(1)
            if not bool(bad.any()):
                return
        name, row, record = _first(bad, clients)
        own = y[record].flatten()
        label = int(own[(own < 0) | (own >= classes)][0])
        ignored = f", and {IGNORED} for what does not count" if task.targets == "places" else ""
        raise DataError(
            f"client {name!r}: {row} has label {label}; {classes} classes are numbered 0 to {classes - 1}{ignored}"
        )


def numbered(of_whom: Iterable[NDArray[np.generic]]) -> NDArray[np.int64]:
    """Each record's person as a number; the same person has the same number at every client."""
    return np.unique(np.concatenate(list(of_whom)), return_inverse=True)[1].reshape(-1)


def persons_of(client: str, units: Mapping[str, ArrayLike]) -> NDArray[np.generic]:
    """The person of each of a client's records."""
    if client not in units:
        raise DataError(f"client {client!r}: no units are given for it; say of whom each of its records is")
    return np.asarray(units[client])


def _first(bad: Tensor, clients: Iterable[Holder]) -> tuple[str, str, int]:
    """The first bad record: its client, its row as that client gave it (test after train), its place in the pool."""
    wrong = bad.numpy()
    for name, train, test in clients:
        own = np.sort(np.concatenate([train, test]))
        hits = np.flatnonzero(wrong[own])
        if len(hits):
            row = int(hits[0])
            return name, f"row {row}", int(own[row])
    record = int(bad.nonzero()[0])
    return "(none)", f"pool row {record}", record


def _tensor(client: str, what: str, values: object) -> Tensor:
    try:
        return torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"client {client!r}: {what} is not an array of numbers ({error})") from error


def _name(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
