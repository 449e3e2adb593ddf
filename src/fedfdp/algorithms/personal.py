"""What personal models share: each client keeps weights w_i of its own, made of noised gradients alone.

They stay with the client, in its memory. They are as private as an update: whoever gets them learns no more than ε.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.record_types import Broadcast, ClientState, ServerState, Upload
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class PersonalMemory(ClientState):
    weights: Weights = field(default_factory=Weights)  # w_i; empty before the first round: then the broadcast ones


@dataclass(frozen=True, kw_only=True)
class Personal(Algorithm[ServerState, Broadcast, Upload, PersonalMemory]):
    """A method whose clients are judged by F_i(w_i)."""

    personal: ClassVar[bool] = True

    def holds(self, weights: Weights, memory: PersonalMemory) -> Weights:
        """w_i; of a client that never took part, the released weights."""
        return memory.weights or weights
