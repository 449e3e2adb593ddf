"""Local only: every client trains by itself, at the same ε. What joining a federation must beat.

Nothing of a client's records leaves it: its update is zero, and the released model stays as it was at the start.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from fedfdp.algorithms.local_round import LocalRound
from fedfdp.algorithms.personal import Personal, PersonalMemory
from fedfdp.algorithms.record_types import Broadcast, ServerState, Upload
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class LocalOnly(Personal):
    """w_i ← w_i − η·g(w_i), and nothing else."""

    name: ClassVar[str] = "local"

    def start(self, broadcast: Broadcast, memory: PersonalMemory) -> Weights:
        return memory.weights or broadcast.weights

    def reply(self, here: LocalRound[Broadcast, PersonalMemory], update: Weights) -> tuple[Upload, PersonalMemory]:
        upload = Upload(here.client.name, here.client.records, w.zeros_like(update))
        return upload, PersonalMemory(w.add(here.origin, update))

    def aggregate(self, state: ServerState, uploads: Iterable[Upload]) -> ServerState:
        for _ in uploads:  # a client has had its round once its upload is taken
            pass
        return replace(state, round=state.round + 1)

    def released(self) -> dict[str, str]:
        return {"update": "zeros: nothing of the records leaves; the client's own model is made of noised gradients"}
