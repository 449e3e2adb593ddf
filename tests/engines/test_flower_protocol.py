"""Versions side by side: the messages of 0.1.0 as it sent them, of a version to come, and of our own."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import recorddict_from_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto

from fedfdp.core.errors import DataError
from fedfdp.engines.flower import messages
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import VERSION, Answer, Question, pack, reply_to, unpack
from fedfdp.engines.flower.roster import Roster

OLD = Path(__file__).parent / "release_0_1_0"
QUESTION = Question("train", "run", "{}", 3, 1, b"record", 5)


def stored(name: str) -> RecordDict:
    return recorddict_from_proto(Proto.FromString((OLD / f"{name}.bin").read_bytes()))


def other(message, *, version=VERSION, oldest=VERSION, release="9.9.9", **fields) -> RecordDict:
    """A message as another version would send it."""
    content = pack(message)
    content["fedfdp"] = ConfigRecord({**content["fedfdp"], **fields})
    content["protocol"] = ConfigRecord({"version": version, "oldest": oldest, "release": release})
    return content


@pytest.mark.parametrize("kind", ["hello", "train", "evaluate"])
def test_a_node_says_to_a_coordinator_of_0_1_0_why_not(kind, deployment):
    node = next(iter(deployment().nodes.values()))
    message = Message(stored(f"question_{kind}"), 1, messages.MESSAGE_TYPE[kind])
    message.metadata.__dict__["_message_id"] = "1"
    reply = reply_to(message, node.answer)
    values = dict(reply.content["fedfdp"])  # 0.1.0 reads this record alone, with exactly these fields
    assert set(values) == {"status", "run", "round", "reason", "spent"}
    assert values["status"] == "refused"
    assert "speaks protocol 1 (fedfdp 0.1.0)" in values["reason"]
    assert "upgrade fedfdp there" in values["reason"]
    assert len(values["reason"].splitlines()) == 1
    assert node.book.charged() == 0


@pytest.mark.parametrize("kind", ["hello", "train", "evaluate"])
def test_a_coordinator_says_of_a_node_of_0_1_0_why_not(kind):
    with pytest.raises(DataError, match=r"protocol 1 \(fedfdp 0.1.0\), this one takes 2 to 3 .*; upgrade fedfdp there"):
        unpack(Answer, stored(f"answer_{kind}"), limit=10**6)


def test_such_a_node_is_not_let_in_and_the_reason_is_kept():
    answer = None
    try:
        unpack(Answer, stored("answer_hello"), limit=10**6)
    except DataError as error:
        answer = error
    roster = Roster(("client-0",), Exchange(None, {"client-0": 7}))
    roster._welcome(7, "client-0", answer)
    assert roster.hellos == {}
    assert "speaks protocol 1" in roster.refused["client-0"]


def test_0_1_0_can_read_what_we_ask_at_first():
    """It looks at two records by name and passes over others, so that it can say hello and be told why not."""
    content = pack(Question("hello", "", ""))
    assert set(stored("question_hello")) == {"fedfdp"} < set(content)


@pytest.mark.parametrize("message", [QUESTION, Answer("ok", "run", 3, record=b"record")])
def test_our_own_and_the_next_version_that_takes_ours(message):
    assert unpack(type(message), pack(message), limit=100) == message
    assert unpack(type(message), other(message, version=VERSION + 1, later="new", flag=True), limit=100) == message


def test_a_later_version_that_does_not_take_ours():
    with pytest.raises(DataError, match=r"no protocol before 4 \(fedfdp 9.9.9\).* speaks 3 .*upgrade fedfdp here"):
        unpack(Question, other(QUESTION, version=5, oldest=4), limit=100)


@pytest.mark.parametrize(
    "protocol",
    [
        {"version": 0, "oldest": 0, "release": "x"},
        {"version": 2, "oldest": 3, "release": "x"},
        {"version": 2.0, "oldest": 2, "release": "x"},
        {"version": True, "oldest": True, "release": "x"},
        {"version": 2, "oldest": 2, "release": b"x"},
        {"version": 2**40, "oldest": 1, "release": "x"},
    ],
)
def test_an_impossible_protocol_is_refused(protocol):
    content = pack(QUESTION)
    content["protocol"] = ConfigRecord(protocol)
    with pytest.raises(DataError, match="impossible protocol"):
        unpack(Question, content, limit=100)


def test_a_field_too_many_of_our_own_version_is_refused():
    with pytest.raises(DataError, match="not a valid Question"):
        unpack(Question, other(QUESTION, later="new"), limit=100)


def test_a_question_of_protocol_2_says_nothing_of_records(deployment):
    node = next(iter(deployment().nodes.values()))
    content = other(QUESTION, version=2, oldest=2, release="0.2.0")
    content["fedfdp"] = ConfigRecord({k: v for k, v in content["fedfdp"].items() if k != "records"})
    assert unpack(Question, content, limit=100) == QUESTION
    assert "declared" not in node.answer(unpack(Question, content, limit=100)).reason
    del content["fedfdp"]["seen"]  # protocol 2 had it
    with pytest.raises(DataError, match="not a valid Question"):
        unpack(Question, content, limit=100)
    ours = pack(QUESTION)
    ours["fedfdp"] = ConfigRecord({k: v for k, v in ours["fedfdp"].items() if k != "records"})
    with pytest.raises(DataError, match="not a valid Question"):
        unpack(Question, ours, limit=100)
