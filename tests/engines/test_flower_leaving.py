"""A node that is asked to leave: it answers what it is busy with, and no further question."""

import threading

import pytest

pytest.importorskip("flwr")

from fedfdp.engines.flower import worker


class Coordinator:
    """Has three questions; a signal comes while the second is computed."""

    def __init__(self, leave):
        self.questions, self.sent, self.leave = ["one", "two", "three"], [], leave

    def receive(self):
        return self.questions.pop(0) if self.questions else None

    def send(self, reply):
        self.sent.append(reply)


def test_the_present_question_is_answered_and_no_other(monkeypatch):
    leave = threading.Event()
    coordinator = Coordinator(leave)

    def answer(message, _):
        if message == "two":
            leave.set()
        return f"answer to {message}"

    monkeypatch.setattr(worker, "reply_to", answer)
    node = type("Node", (), {"answer": None})
    worker._attend(node, coordinator, poll=0.01, parent=None, leave=leave)
    assert coordinator.sent == ["answer to one", "answer to two"]
    assert coordinator.questions == ["three"]
