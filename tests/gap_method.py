"""A method with four records of its own, registered nowhere: for tests/algorithms/test_new_method.py.

The more the clients' losses have changed since their last round, the shorter are the steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import (
    Algorithm,
    Broadcast,
    ClientState,
    LocalRound,
    Mean,
    Question,
    Released,
    ServerState,
    Upload,
)
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class GapState(ServerState):
    gap: float = 0.0  # Σ p_i (F̃_i − F̃_i of its last round)


@dataclass(frozen=True)
class GapMessage(Broadcast):
    gap: Annotated[float, ranges.LOSS]


@dataclass(frozen=True)
class GapReply(Upload):
    gap: float = field(metadata={"meaning": "the change of the noised loss since the client's last round"})


@dataclass(frozen=True)
class GapMemory(ClientState):
    loss: Annotated[float, ranges.LOSS] = 0.0


@dataclass(frozen=True, kw_only=True)
class Gap(Algorithm[GapState, GapMessage, GapReply, GapMemory]):
    """Steps of η/(1 + damp·|gap|)."""

    damp: Annotated[float, ranges.LAMBDA] = 1.0  # how much a changed loss shortens steps

    name: ClassVar[str] = "gap"

    def question(self, memory: GapMemory) -> Question:
        return Question(loss_bound=2.0)

    def direction(self, here: LocalRound[GapMessage, GapMemory], released: Released) -> Weights:
        return w.multiply(released.gradient, 1 / (1 + self.damp * abs(here.broadcast.gap)))

    def reply(self, here: LocalRound[GapMessage, GapMemory], update: Weights) -> tuple[GapReply, GapMemory]:
        upload = GapReply(here.client.name, here.client.records, update, here.loss - here.before.loss)
        return upload, GapMemory(here.loss)

    def aggregate(self, state: GapState, uploads: Iterable[GapReply]) -> GapState:
        mean, gap = Mean(state.weights), 0.0
        for upload in uploads:
            mean.add(upload.update, upload.weight)
            gap += upload.weight * upload.gap
        known = gap / mean.weight if mean.weight else state.gap
        return replace(state, round=state.round + 1, weights=mean.added_to(state.weights), gap=known)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"damp": (0.0, 1.0), **super().grid()}
