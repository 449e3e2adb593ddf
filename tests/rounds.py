"""Rounds of a method played client by client, with nothing in between: no engine, no ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from fedfdp.algorithms.base import Algorithm, Population
from fedfdp.data import Federation
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.client import LocalClient
from support import Given


@dataclass(frozen=True)
class Played:
    """Where a run stands, and what its last round sent."""

    state: Any
    memories: dict[str, Any] = field(default_factory=dict)
    uploads: Sequence[Any] = ()
    broadcast: Any = None

    @property
    def weights(self) -> list[float]:
        return flat(self.state.weights)


def flat(weights: dict[str, torch.Tensor]) -> list[float]:
    return torch.cat([tensor.flatten() for tensor in weights.values()]).tolist()


def linear(*start: float) -> Learner:
    """w·x under (w·x − y)², from the weights given."""
    model = nn.Linear(len(start), 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([start]))
    return Learner(model, squared_error)


def population(federation: Federation) -> Population:
    sizes = [len(client.train) for client in federation.clients]
    return Population(len(sizes), sum(sizes), min(sizes), federation.classes)


def everyone(name: str, round: int) -> bool:
    return True


def play(
    algorithm: Algorithm,
    federation: Federation,
    learner: Learner,
    *,
    privacy: DPSGD | None = None,
    randomness: Any = None,
    rounds: int = 1,
    present: Callable[[str, int], bool] = everyone,
    after: Played | None = None,
) -> Played:
    """That many rounds, from the start or after others; `present(client, round)` says who takes part."""
    played = after or Played(algorithm.init(learner.initial(), population(federation), privacy))
    for _ in range(rounds):
        broadcast, memories, uploads = algorithm.broadcast(played.state), dict(played.memories), []
        for data in federation.clients:
            if not present(data.name, broadcast.round):
                continue
            client = LocalClient(
                data, learner, privacy=privacy, randomness=randomness or Given(), round=broadcast.round
            )
            memory = memories.get(data.name, algorithm.memory())
            upload, memories[data.name] = algorithm.local(broadcast, memory, client)
            uploads.append(upload)
        state = algorithm.aggregate(played.state, iter(uploads))
        played = replace(played, state=state, memories=memories, uploads=uploads, broadcast=broadcast)
    return played
