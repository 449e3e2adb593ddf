"""What a node does with an answer that the coordinator does not take: it stays."""

import logging

import httpx
import pytest

pytest.importorskip("flwr")
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from fedfdp.engines.flower.worker import _deliver

REFUSED = httpx.HTTPStatusError("", request=None, response=httpx.Response(404, text="the run is over"))


class Coordinator:
    """Takes an answer only after so many failures."""

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.taken, self.asked = list(failures), [], 0

    def send(self, reply: object) -> None:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(reply)


def lost() -> ObjectPushError:
    return ObjectPushError("an object", 7, "a session")


@pytest.mark.parametrize(
    ("failures", "asked", "taken", "warning"),
    [
        ([], 1, ["reply"], None),
        ([lost()], 2, ["reply"], None),
        ([lost(), lost()], 2, [], "not taken: Failed to push"),
        ([REFUSED], 1, [], "not taken: the run is over"),
        ([lost(), REFUSED], 2, [], "not taken: the run is over"),
    ],
)
def test_an_answer_that_is_not_taken_ends_nothing(failures, asked, taken, warning, caplog):
    coordinator = Coordinator(*failures)
    with caplog.at_level(logging.WARNING):
        _deliver("reply", coordinator)
    assert (coordinator.asked, coordinator.taken) == (asked, taken)
    assert [warning in record.message for record in caplog.records] == ([True] if warning else [])


def test_a_coordinator_that_cannot_be_reached_is_another_matter():
    with pytest.raises(httpx.ConnectError):
        _deliver("reply", Coordinator(httpx.ConnectError("refused")))
