"""Arrays, tensors and torch Datasets that clients are given as, turned into checked tensors.

Records that cannot be trained on raise an error that names the client and the row. Only dtypes are converted: no value
is changed, dropped or filled in.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from fedfdp.core.errors import DataError


def parts_of(client: str, given: object) -> list[tuple[object, object]]:
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


def _read(client: str, dataset: "Dataset[object]") -> tuple[Tensor, Tensor]:
    """Every item of a map-style torch Dataset, read once."""
    if not hasattr(dataset, "__len__") or isinstance(dataset, IterableDataset):
        raise DataError(f"client {client!r}: {type(dataset).__name__} has no length; only map-style Datasets are read")
    xs, ys = [], []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise DataError(f"client {client!r}: item {i} of its Dataset is no pair (x, y)")
        xs.append(_tensor(client, f"x of item {i}", item[0]))
        ys.append(_tensor(client, f"y of item {i}", item[1]))
    if not xs:
        raise DataError(f"client {client!r}: its Dataset has no items; leave it out")
    try:
        return torch.stack(xs), torch.stack(ys)
    except RuntimeError:
        raise DataError(f"client {client!r}: the items of its Dataset differ in shape; make them alike") from None


def as_inputs(client: str, values: object, like: Tensor | None) -> Tensor:
    """A client's inputs as float32, or as int64 if they are token numbers; their shape must be the first client's."""
    x = _tensor(client, "x", values)
    if x.dim() == 0:
        raise DataError(f"client {client!r}: x is a single number; records go along its first axis")
    if x.dtype in (torch.uint8, torch.bool):
        raise DataError(f"client {client!r}: x is {_name(x)}; scale it to floats first, for example x / 127.5 - 1")
    x = x.float() if x.is_floating_point() else x.long()
    if like is not None and x.shape[1:] != like.shape[1:]:
        raise DataError(
            f"client {client!r}: records of shape {tuple(x.shape[1:])}, the first client's are {tuple(like.shape[1:])}"
        )
    if like is not None and x.dtype != like.dtype:
        raise DataError(f"client {client!r}: x is {_name(x)}, the first client's is {_name(like)}")
    return x


def as_targets(client: str, values: object, *, records: int, classes: int | None, like: Tensor | None) -> Tensor:
    """A client's targets: class numbers as int64, or float32 for regression."""
    y = _tensor(client, "y", values)
    if y.dim() == 0 or len(y) != records:
        raise DataError(f"client {client!r}: {records} records in x, {len(y) if y.dim() else 1} in y")
    if classes is not None and y.is_floating_point():
        raise DataError(f"client {client!r}: y is {_name(y)}; {classes} classes need whole numbers 0 to {classes - 1}")
    y = y.float() if y.is_floating_point() else y.long()
    if not y.is_floating_point() and y.dim() != 1:
        raise DataError(f"client {client!r}: y has shape {tuple(y.shape)}; class numbers need one for each record")
    if like is not None and (y.dtype != like.dtype or y.shape[1:] != like.shape[1:]):
        raise DataError(
            f"client {client!r}: y is {_name(y)} {tuple(y.shape[1:])}, the first client's is "
            f"{_name(like)} {tuple(like.shape[1:])}"
        )
    return y


def check_records(
    x: Tensor, y: Tensor, classes: int | None, clients: Sequence[tuple[str, int, Tensor, Tensor]]
) -> None:
    """Raises a DataError for the first fault. A client is (name, training records, train index, test index)."""
    if not clients:
        raise DataError("a federation needs at least one client")
    for name, train, _, _ in clients:
        if train == 0:
            raise DataError(f"client {name!r} has no training records; give it some or leave it out")
    if len({name for name, *_ in clients}) < len(clients):
        raise DataError("two clients have the same name; names must differ")
    if len(x) != len(y):
        raise DataError(f"{len(x)} records in x, {len(y)} in y")
    if classes is not None and (y.is_floating_point() or y.is_complex()):
        raise DataError(f"y is {_name(y)}; {classes} classes need whole numbers 0 to {classes - 1}")
    for what, values in (("x", x), ("y", y)):
        # If any value is NaN or infinite, the smallest or the largest is: one pass, no copy.
        if values.is_floating_point() and values.numel() and not torch.stack(torch.aminmax(values)).isfinite().all():
            name, row, _ = _first(~values.isfinite().reshape(len(values), -1).all(1), clients)
            raise DataError(f"client {name!r}: {row} of {what} holds NaN or infinity; fill it in or drop the row")
    if classes is not None and len(y) and (y.min() < 0 or y.max() >= classes):
        name, row, record = _first((y < 0) | (y >= classes), clients)
        raise DataError(
            f"client {name!r}: {row} has label {int(y[record])}; {classes} classes are numbered 0 to {classes - 1}"
        )


def _first(bad: Tensor, clients: Sequence[tuple[str, int, Tensor, Tensor]]) -> tuple[str, str, int]:
    """The first bad record: its client, its row as that client gave it (test after train), its place in the pool."""
    for name, _, train, test in clients:
        own = torch.cat([train, test]).sort().values
        hits = bad[own].nonzero()
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
