"""A federated method of your own in one file: FedAvg whose clients keep momentum from step to step and round to round.

    PYTHONPATH=examples fedfdp run digits --set algorithm.name=own_method:MyMethod --set algorithm.beta=0.5

A method is a frozen dataclass of hyper-parameters over four records: the server's State, the Message it broadcasts, a
client's Reply and its Memory. Say only what differs from federated averaging; here that is the client's side. The
velocity is made of what batches have released and of nothing else, so the method is private, at no further cost,
whenever [privacy] is set. A method that also wants a loss asks the batch for it in the same `release`, by a LossQuery,
and says so in `joint_event`: otherwise the engine stops it before anything is uploaded.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Batch, Broadcast, Client, Upload, descend
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class Velocity:
    """What a client remembers: tensors, numbers, strings, dicts and dataclasses of them can be kept and sent."""

    v: Weights = field(default_factory=Weights)


@dataclass(frozen=True, kw_only=True)
class MyMethod(Algorithm):
    """Local steps along v ← β·v + gradient."""

    beta: float = 0.9  # any field is a setting: algorithm.beta

    name: ClassVar[str] = "my_method"
    Memory: ClassVar[type] = Velocity

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.beta < 1, "beta", "at least 0, below 1", "0.9 is usual, 0 is FedAvg")

    def memory(self) -> Velocity:
        return Velocity()

    def local(self, broadcast: Broadcast, memory: Velocity, client: Client) -> tuple[Upload, Velocity]:
        coefficient = self.coefficient(broadcast, client.privacy)
        velocity = memory.v or w.zeros_like(broadcast.weights)

        def with_momentum(batch: Batch, here: Weights) -> Weights:
            nonlocal velocity
            gradient = batch.release(here, coefficient=coefficient).gradient  # plain or private, as the run says
            velocity = w.add(gradient, velocity, scale=self.beta)
            return velocity

        steps = self.batches(broadcast, client)
        update = descend(broadcast.weights, steps, lr=self.rate(broadcast.round), direction=with_momentum)
        return Upload(client.name, client.records, update), Velocity(velocity)
