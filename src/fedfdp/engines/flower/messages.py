"""What crosses the network: questions and answers as Flower records, their tensors as safetensors.

Nothing is unpickled, and nothing here trusts what it reads: a message that does not parse is a DataError.

Every message says which protocol its sender speaks, and the oldest that it takes; 0.1.0 said nothing, which is 1. Two
sides work together if neither is too old for the other. So a new field needs a new VERSION, which older ones pass over,
and a change that older ones must not pass over needs a new OLDEST too. All versions look records up by name, so what
travels in a record of its own, and may be missing, needs neither.
"""

import dataclasses
import importlib.metadata
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedfdp.core.errors import DataError
from fedfdp.core.records import Weights

log = logging.getLogger("fedfdp.node")

Kind = Literal["hello", "train", "evaluate"]
Status = Literal["ok", "refused", "unable"]
MESSAGE_TYPE: dict[Kind, str] = {"hello": "query", "train": "train", "evaluate": "evaluate"}

MOST_ROUNDS = 2**31
MOST_TERMS = 2**20  # characters
MOST_BYTES = 2**31  # of a question's record
LONGEST_REASON = 300  # characters of what one side gives as its reason
COULD_NOT = "the node could not answer; its owner finds the reason in its log"

_RUN = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)
_STYPE = "fedfdp.record"
M = TypeVar("M", "Question", "Answer")

VERSION = 3  # 3: a question says how many records its node declared
OLDEST = 2  # 1: its reports of a ledger do not say which ε the ledger claims, so no run could state one
_LATER = {"records": 0}  # fields that came after OLDEST, and what a sender means that does not know them
_PROTOCOL = "protocol"
_FIRST = "0.1.0"  # the release that spoke protocol 1
_UNNOISED = "unnoised"  # the part of a report that travels in a record of its own


@dataclass(frozen=True)
class Question:
    """What the coordinator asks of a node: `terms` are the settings it proposes, `record` holds the broadcast."""

    kind: Kind
    run: str  # which run: a node's memory of another one is not used
    terms: str  # JSON
    round: int = 0
    last: int = -1  # the latest round in which this node's upload was used
    record: bytes = b""
    seen: int = 0  # the most charges that this coordinator has seen in the node's ledger, in all its runs
    records: int = 0  # how many the node declared when it said hello; 0: not said

    def __post_init__(self) -> None:
        """Refuses what is wrong at first sight."""
        if self.kind not in MESSAGE_TYPE:
            raise DataError(f"no such kind of question: {self.kind!r:.40}")
        if not _RUN.fullmatch(self.run):
            raise DataError(f"a run is named by at most 64 letters, digits, - and _, not {self.run!r:.40}")
        if not 0 <= self.round < MOST_ROUNDS:
            raise DataError(f"round {self.round!s:.40} is not from 0 to {MOST_ROUNDS - 1}")
        if not -1 <= self.last < max(self.round, 1):
            raise DataError(f"round {self.last!s:.40} cannot be the one used last before round {self.round}")
        if not 0 <= self.seen < 2**62:
            raise DataError(f"{self.seen!s:.40} charges cannot have been seen")
        if not 0 <= self.records < 2**62:
            raise DataError(f"{self.records!s:.40} records cannot have been declared")
        if len(self.terms) > MOST_TERMS:
            raise DataError(f"terms of {len(self.terms):,} characters, where {MOST_TERMS:,} are allowed")


@dataclass(frozen=True)
class Answer:
    """What a node says: an upload, or why there is none, in one short line.

    `spent` is its ledger's history, the rule by which the ledger claims an ε, and what no ledger shows: how many rounds
    were answered without noise. It holds no data.
    """

    status: Status
    run: str
    round: int
    reason: str = ""
    spent: str = "{}"  # JSON
    record: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))


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
    unit: str = "record"  # whom its guarantee is for, and what `records` counts
    width: float = 1.0  # the part of the full model's width that it can hold
    inputs: str = ""  # of records with several inputs: their names, shapes and kinds, as JSON
    task: str = ""  # what its targets are; "": one class each, or numbers


@dataclass(frozen=True)
class Judge:
    """Weights to be judged on a node's own test records. There is no way to ask for training records."""

    weights: Weights


@dataclass(frozen=True)
class Judged:
    """Raw results of one node on its test records, given only where its owner opted in."""

    loss: float
    accuracy: float
    records: int
    answered: int  # evaluations that this node has answered so far, in all runs


def one_line(text: str) -> str:
    """The text without line breaks and control characters, and not too long: it may quote what a stranger sent.

    What is too long is cut in the middle: the beginning says what is wrong, the end what to do.
    """
    most = 4 * LONGEST_REASON
    text = text if len(text) <= most else text[: most // 2] + " " + text[-most // 2 :]
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= LONGEST_REASON:
        return line
    end = LONGEST_REASON // 3
    return line[: LONGEST_REASON - 1 - end] + "…" + line[-end:]


def pack(message: Question | Answer) -> RecordDict:
    """The message as Flower carries it; the record goes as an array, which Flower sends in pieces."""
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    data: bytes = fields.pop("record")
    unnoised = ""
    if isinstance(message, Answer):
        fields["spent"], unnoised = _apart(message.spent)
    speaks = {"version": VERSION, "oldest": OLDEST, "release": importlib.metadata.version("fedfdp")}
    content = RecordDict({"fedfdp": ConfigRecord(fields), _PROTOCOL: ConfigRecord(speaks)})
    if unnoised:
        content[_UNNOISED] = ConfigRecord({"rounds": unnoised})
    if data:
        content["record"] = ArrayRecord({"record": Array("uint8", (len(data),), _STYPE, data)})
    return content


def unpack(kind: type[M], content: RecordDict, *, limit: int) -> M:
    """The message in `content`, if it is one, its sender speaks as we do, and its record has at most `limit` bytes."""
    try:
        values, spoken = dict(content["fedfdp"]), _understood(content.config_records.get(_PROTOCOL, {}))
        arrays = content.array_records.get("record")
        array = arrays["record"] if arrays is not None else None
        known = {f.name: f.type for f in dataclasses.fields(kind) if f.name != "record"}
        if spoken > VERSION:
            values = {name: value for name, value in values.items() if name in known}
        if spoken < VERSION:
            values = {**{name: value for name, value in _LATER.items() if name in known}, **values}
        if set(values) != set(known):
            raise ValueError(f"fields {sorted(values)}")
        for name, type_ in known.items():
            if not isinstance(values[name], int if type_ is int else str) or isinstance(values[name], bool):
                raise ValueError(f"{name} is {values[name]!r:.60}")
        if kind is Answer and (unnoised := content.config_records.get(_UNNOISED)) is not None:
            values["spent"] = json.dumps({**json.loads(values["spent"]), _UNNOISED: json.loads(unnoised["rounds"])})
        if array is not None and array.stype != _STYPE:
            raise ValueError(f"a record of type {array.stype!r:.60}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"not a valid {kind.__name__}: {error}") from None
    data = b"" if array is None else array.data
    if len(data) > limit:
        raise DataError(f"a record of {len(data):,} bytes, where {limit:,} are allowed")
    return kind(**values, record=data)


def _apart(spent: str) -> tuple[str, str]:
    """A report as older versions take it, who refuse one with more in it; and what they do not know, or nothing."""
    if f'"{_UNNOISED}"' not in spent:
        return spent, ""
    report = json.loads(spent)
    unnoised = report.pop(_UNNOISED)
    return json.dumps(report), json.dumps(unnoised)


def _understood(said: Mapping[str, object]) -> int:
    """The protocol that the sender speaks; a DataError says which side is too old for the other."""
    version, oldest, release = said.get("version", 1), said.get("oldest", 1), said.get("release", _FIRST)
    if not (type(version) is type(oldest) is int and isinstance(release, str) and 1 <= oldest <= version < 2**31):
        raise DataError("a message of an impossible protocol")
    ours = importlib.metadata.version("fedfdp")
    if version < OLDEST:
        raise DataError(
            f"the other side speaks protocol {version} (fedfdp {one_line(release)[:20]}), this one takes {OLDEST} to "
            f"{VERSION} (fedfdp {ours}); upgrade fedfdp there"
        )
    if oldest > VERSION:
        raise DataError(
            f"the other side takes no protocol before {oldest} (fedfdp {one_line(release)[:20]}), this one speaks "
            f"{VERSION} (fedfdp {ours}); upgrade fedfdp here"
        )
    return version


def reply_to(message: Message, answer: Callable[[Question], Answer]) -> Message:
    """The answer to a question as it came over the network; one that cannot be read is refused like any other.

    Whatever fails in `answer` is for the node's owner alone: a stock Flower runtime sends the text of an exception on.
    """
    try:
        question = unpack(Question, message.content, limit=MOST_BYTES)
    except DataError as error:
        said = Answer("refused", "", -1, reason=str(error))
    except Exception:  # whatever a hostile sender made the parser do
        log.exception("a message that cannot be read")
        said = Answer("refused", "", -1, reason=COULD_NOT)
    else:
        try:
            said = answer(question)
        except Exception:
            log.exception("failed before an answer to %s, round %s", question.kind, question.round)
            said = Answer("refused", question.run, question.round, reason=COULD_NOT)
    return Message(pack(said), reply_to=message)
