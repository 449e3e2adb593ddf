"""A federated method of your own in one file: FedAvg whose clients keep momentum from step to step and round to round.

    PYTHONPATH=examples fedfdp run digits --set algorithm.name=own_method:MyMethod --set algorithm.beta=0.5

A method is a frozen dataclass of hyper-parameters over four records: the server's State, the Message it broadcasts, a
client's Reply and its Memory, named once in `Algorithm[…]`. Say only what differs from federated averaging; here that
is what a step follows. The velocity is made of what batches have released and of nothing else, so the method is
private, at no further cost, whenever [privacy] is set. A method that also wants a loss says so in `question`.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Broadcast, ClientState, LocalRound, Released, ServerState, Upload
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class Velocity(ClientState):
    """What a client remembers: tensors, numbers, strings, dicts and dataclasses of them can be kept and sent."""

    v: Weights = field(default_factory=Weights)


@dataclass(frozen=True, kw_only=True)
class MyMethod(Algorithm[ServerState, Broadcast, Upload, Velocity]):
    """Local steps along v ← β·v + gradient."""

    beta: float = 0.9  # any field is a setting: algorithm.beta

    name: ClassVar[str] = "my_method"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.beta < 1, "beta", "at least 0, below 1", "0.9 is usual, 0 is FedAvg")

    def direction(self, here: LocalRound[Broadcast, Velocity], released: Released) -> Weights:
        old = here.memory.v or w.zeros_like(here.weights)
        here.memory = Velocity(w.add(released.gradient, old, scale=self.beta))  # the gradient is plain or private
        return here.memory.v
