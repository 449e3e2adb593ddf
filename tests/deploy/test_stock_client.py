"""The ClientApp for a stock SuperNode, called as its process calls it: no text of an error leaves it."""

import logging

import pytest
import tomli_w

pytest.importorskip("flwr")
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from fedfdp.deploy.node import open_node
from fedfdp.engines.flower import client_app
from fedfdp.engines.flower.messages import COULD_NOT, MESSAGE_TYPE, Answer, Question, pack, unpack
from fedfdp.engines.flower.policy import load_node

SECRET = "HIV+ since 2019"
QUESTIONS = [Question("hello", "", ""), Question("train", "r", "{}", 3, 1), Question("evaluate", "r", "{}", 3, 1)]


@pytest.fixture(autouse=True)
def _task():
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1


def write(folder, *, cell="3", **settings):
    rows = "".join(f"{i % 7},{i % 2}\n" for i in range(40))
    (folder / "visits.csv").write_text(f"age,label\n{rows}{cell},1\n")
    data = {"file": "visits.csv", "label": "label", "classes": ["0", "1"], "columns": {"age": [0, 10]}}
    about = {"name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True, "data": data, **settings}
    (folder / "node.toml").write_text(tomli_w.dumps(about))
    return folder / "node.toml"


def asked(node, question):
    """What the app answers, and all bytes of it. An exception out of it would be sent with its text."""
    message = Message(pack(question), 1, MESSAGE_TYPE[question.kind])
    message.metadata.__dict__["_message_id"] = "1"
    context = Context(run_id=1, node_id=1, node_config={"node": str(node)}, state=RecordDict(), run_config={})
    reply = client_app.app(message, context)
    assert not reply.has_error()
    return unpack(Answer, reply.content, limit=10**6), message_to_proto(reply).SerializeToString()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.kind)
def test_a_record_that_cannot_be_read_is_told_to_the_owner_alone(question, tmp_path, caplog):
    node = write(tmp_path, cell=SECRET)
    with caplog.at_level(logging.ERROR, "fedfdp.node"):
        answer, sent = asked(node, question)
    assert (answer.status, answer.reason) == ("refused", COULD_NOT)
    assert (answer.run, answer.round, answer.record) == (question.run, question.round, b"")
    for text in (SECRET, "HIV", "age", "visits.csv", str(tmp_path)):
        assert text.encode() not in sent
    assert SECRET in caplog.text


def test_records_that_cannot_be_used_are_looked_at_once(tmp_path, monkeypatch):
    node, looks = write(tmp_path, cell=SECRET), []

    def looked(config):
        looks.append(config)
        return open_node(config)

    monkeypatch.setattr(client_app, "open_node", looked)
    for question in QUESTIONS * 2:
        assert asked(node, question)[0].reason == COULD_NOT
    assert len(looks) == 1
    stopped = tmp_path / "state" / "stopped"
    assert stopped.read_text().startswith("opening the node: DataError; see node.log")
    assert SECRET not in stopped.read_text()
    write(tmp_path)
    assert asked(node, QUESTIONS[0])[0].reason == COULD_NOT  # until the owner has looked
    stopped.unlink()
    assert asked(node, QUESTIONS[0])[0].status == "ok"


@pytest.mark.parametrize("name", ["nowhere.toml", "folder", "broken.toml"])
def test_a_node_file_that_cannot_be_read(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.toml").write_text(f"name = {SECRET}")
    answer, sent = asked(tmp_path / name, QUESTIONS[1])
    assert answer.reason == COULD_NOT
    assert not any(text.encode() in sent for text in (SECRET, "No such file", name))


def test_a_ledger_that_another_process_has_stops_no_node(tmp_path):
    node = write(tmp_path)
    with open_node(load_node(node)):
        assert asked(node, QUESTIONS[0])[0].reason == COULD_NOT
    assert not (tmp_path / "state" / "stopped").exists()
    assert asked(node, QUESTIONS[0])[0].status == "ok"


def test_whatever_the_node_itself_lets_out_stays_there():
    class Broken:
        def answer(self, question):
            raise ZeroDivisionError(SECRET)

    made = client_app.client_app(lambda context: Broken())
    message = Message(pack(QUESTIONS[1]), 1, "train")
    message.metadata.__dict__["_message_id"] = "1"
    reply = made(message, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={}))
    assert unpack(Answer, reply.content, limit=10**6).reason == COULD_NOT
    assert SECRET.encode() not in message_to_proto(reply).SerializeToString()
