"""What crosses the network: questions and answers as Flower records, their tensors as safetensors.

Nothing is unpickled, and nothing here trusts what it reads: a message that does not parse is a DataError.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedfdp.errors import DataError
from fedfdp.records import Weights

Kind = Literal["hello", "train", "evaluate"]
MESSAGE_TYPE: dict[Kind, str] = {"hello": "query", "train": "train", "evaluate": "evaluate"}

_STYPE = "fedfdp.record"
M = TypeVar("M", "Question", "Answer")


@dataclass(frozen=True)
class Question:
    """What the coordinator asks of a node: `terms` say under which settings, `record` holds the broadcast."""

    kind: Kind
    run: str  # which run: a node's memory of another one is not used
    terms: str  # JSON
    round: int = 0
    last: int = -1  # the latest round in which this node's upload was used
    record: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What a node says: an upload, or why there is none. `spent` is its ledger's history, which holds no data."""

    status: Literal["ok", "refused", "unable"]
    run: str
    round: int
    reason: str = ""
    spent: str = "[]"  # JSON
    record: bytes = b""


@dataclass(frozen=True)
class Hello:
    """What a node says of itself: all of it public."""

    name: str
    records: int
    input_shape: tuple[int, ...]
    classes: int | None
    outputs: int
    evaluates: bool
    tokens: bool = False  # whether records are token numbers
    unit: str = "record"  # whom its guarantee is for; `records` counts these


@dataclass(frozen=True)
class Judge:
    """Weights to be judged on a node's own records; on its training records too at the end."""

    weights: Weights
    train: bool


@dataclass(frozen=True)
class Judged:
    """Raw results of one node, given only where its owner opted in."""

    loss: float
    accuracy: float
    records: int
    train_loss: float
    train_accuracy: float
    train_records: int


def pack(message: Question | Answer) -> RecordDict:
    """The message as Flower carries it; the record goes as an array, which Flower sends in pieces."""
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    data: bytes = fields.pop("record")
    content = RecordDict({"fedfdp": ConfigRecord(fields)})
    if data:
        content["record"] = ArrayRecord({"record": Array("uint8", (len(data),), _STYPE, data)})
    return content


def unpack(kind: type[M], content: RecordDict, *, limit: int) -> M:
    """The message in `content`, if it is one and its record has at most `limit` bytes."""
    try:
        values: dict[str, Any] = dict(content["fedfdp"])
        arrays = content.array_records.get("record")
        array = arrays["record"] if arrays is not None else None
        known = {f.name: f.type for f in dataclasses.fields(kind) if f.name != "record"}
        if set(values) != set(known):
            raise ValueError(f"fields {sorted(values)}")
        for name, type_ in known.items():
            if not isinstance(values[name], int if type_ is int else str) or isinstance(values[name], bool):
                raise ValueError(f"{name} is {values[name]!r:.60}")
        if array is not None and array.stype != _STYPE:
            raise ValueError(f"a record of type {array.stype!r:.60}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"no {kind.__name__} of this protocol: {error}") from None
    data = b"" if array is None else array.data
    if len(data) > limit:
        raise DataError(f"a record of {len(data):,} bytes, where {limit:,} are allowed")
    return kind(**values, record=data)
