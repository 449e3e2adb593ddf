"""How many bytes a record takes on the wire, and what a round of each method sends. It moves nothing itself."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedfdp.algorithms import ALGORITHMS, Algorithm
from fedfdp.algorithms.base import Population
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import to_bytes
from fedfdp.core.settings import left_out
from fedfdp.data import Federation
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import LocalClient

FLOAT = 4  # bytes of a weight
# One that every private method accepts.
_PRIVACY = DPSGD(epsilon=100.0, delta=1e-5, sigma=1.0, q=0.5, clip=1.0, sigma_loss=5.0, accountant="rdp")


@dataclass(frozen=True)
class Traffic:
    """What one client of one round receives and sends, in bytes and in models of d weights."""

    method: str
    down: int
    up: int
    weights: int  # d

    @property
    def down_models(self) -> float:
        return self.down / (FLOAT * self.weights)

    @property
    def up_models(self) -> float:
        return self.up / (FLOAT * self.weights)


def bytes_of(record: object) -> int:
    """The size of a record as it is sent: weights, names, numbers and all."""
    return len(to_bytes(record))


def measure(
    model: nn.Module, *, input_shape: tuple[int, ...], outputs: int, methods: Iterable[Algorithm] | None = None
) -> list[Traffic]:
    """A row for each method (None: every one, with its defaults), from a round of this model on made-up records."""
    federation, learner = _federation(input_shape, outputs), Learner(copy.deepcopy(model), cross_entropy)
    chosen = [kind() for kind in ALGORITHMS.values()] if methods is None else methods
    return [_measured(method, federation, learner) for method in chosen]


def _measured(method: Algorithm, federation: Federation, learner: Learner) -> Traffic:
    """The second round, when all that a method compares with an earlier one is there too."""
    method = replace(method, lr=0.1) if left_out(method, "lr") else method  # it changes no byte
    privacy = _accepted(method)
    data = federation.clients[0]
    n = len(data.train)
    state = method.init(learner.initial(), Population(2, 2 * n, n, federation.classes), privacy)
    memory, broadcast, upload = method.memory(), None, None
    for round in range(2):
        broadcast = method.broadcast(state)
        client = LocalClient(data, learner, privacy=privacy, randomness=Seeded(0), round=round)
        upload, memory = method.local(broadcast, memory, client)
        state = method.aggregate(state, iter([upload]))
    return Traffic(method.name, bytes_of(broadcast), bytes_of(upload), w.size(learner.initial()))


def _accepted(method: Algorithm) -> DPSGD | None:
    """Privacy, unless the method refuses it."""
    try:
        method.check_privacy(_PRIVACY)
    except SettingError:
        return None
    return _PRIVACY


def _federation(input_shape: tuple[int, ...], outputs: int) -> Federation:
    x = torch.randn(4, *input_shape, generator=torch.Generator().manual_seed(0))
    y = torch.arange(4) % outputs
    return Federation.from_clients({"client-0": (x, y, x, y), "client-1": (x, y, x, y)}, classes=outputs)
