"""Sends questions to the nodes and takes their answers: who is there, who is busy, who did not answer in time.

A node that is still busy with an earlier question is not asked another: it would pay for a round it cannot finish.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fedfdp.core.errors import DataError
from fedfdp.engines.flower.messages import MESSAGE_TYPE, Answer, Question, pack, unpack
from fedfdp.engines.flower.superlink import EXPIRED, Meter

log = logging.getLogger("fedfdp.server")

POLL = 0.05  # seconds
SILENCE = 8.0  # seconds after which a node that should be polling is taken for gone


class NoAnswerError(DataError):
    """A node that was waited for in vain."""


@dataclass
class Exchange:
    """Questions and answers of a coordinator. `ids` maps names to Flower's node ids, as far as they are known."""

    grid: Grid
    ids: dict[str, int] = field(default_factory=dict)
    meter: Meter | None = None
    given_up: dict[int, float] = field(default_factory=dict)  # when waiting for a node's answer last ended in vain
    check: Callable[[], None] | None = None  # raises where waiting for nodes is in vain
    owners: Mapping[int, str] = field(default_factory=dict)  # whose each node id is, where keys are registered

    def present(self) -> set[int]:
        """The nodes that can be asked now."""
        if self.check is not None:
            self.check()
        online = set(self.grid.get_node_ids())
        if self.meter is None:
            return online
        now, seen, pulled = time.monotonic(), self.meter.seen, self.meter.pulled
        alive = {node for node in online if now - seen.get(node, 0.0) < SILENCE}
        return {node for node in alive if pulled.get(node, 0.0) > self.given_up.get(node, -1.0)}

    def names_present(self, names: Sequence[str]) -> list[str]:
        here = self.present()
        return [name for name in names if self.ids.get(name) in here]

    def ask(
        self, questions: dict[int, Question], *, deadline: float, limit: int
    ) -> Iterator[tuple[int, Answer | DataError]]:
        """Each answer as it arrives, by node id; a DataError in its place says why there is no usable one."""
        if self.meter is not None:
            self.meter.begin(2 * limit)
        waiting: dict[str, int] = {}
        end = time.monotonic() + deadline
        for node, question in questions.items():
            kind = MESSAGE_TYPE[question.kind]
            message = Message(pack(question), node, kind, ttl=deadline, group_id=str(question.round))
            (sent,) = self.grid.push_messages([message]) or ("",)
            if sent:
                waiting[sent] = node
            else:
                yield node, DataError("it could not be reached")
        while waiting and time.monotonic() < end:
            for message_id, node in list(waiting.items()):
                if (answer := self._pull(message_id, limit)) is not None:
                    del waiting[message_id]
                    yield node, answer
            for node in self.meter.over if self.meter else ():
                for message_id in [m for m, n in waiting.items() if n == node]:
                    del waiting[message_id]
                    yield node, DataError(f"it sent more than the {2 * limit:,} bytes a round allows")
            time.sleep(POLL)
        for node in waiting.values():
            self.given_up[node] = time.monotonic()
            yield node, NoAnswerError(f"no answer within {deadline:g} seconds")

    def _pull(self, message_id: str, limit: int) -> Answer | DataError | None:
        """One node's answer, if it is there. Whatever is wrong with it must not stop the others."""
        try:
            replies = list(self.grid.pull_messages([message_id]))
        except Exception as error:
            return DataError(f"an answer that cannot be read: {type(error).__name__}: {error}")
        if not replies:
            return None
        (reply,) = replies
        if reply.has_error() and reply.error.code == EXPIRED:
            return None  # it expires a moment before our deadline: the node may still be computing
        if reply.has_error():
            return DataError(f"it is gone: {reply.error.reason or reply.error.code}")
        try:
            return unpack(Answer, reply.content, limit=limit)
        except DataError as error:
            return error
