"""Table 1: what a round of each method sends, in bytes of the records as they are sent. Nothing is sent or trained."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedfdp import algorithms, models
from fedfdp.algorithms import ALGORITHMS, Algorithm
from fedfdp.algorithms.base import Population
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import to_bytes
from fedfdp.core.settings import left_out, parse
from fedfdp.data import Federation
from fedfdp.experiments.methods import private_methods
from fedfdp.experiments.paper import COMMUNICATION
from fedfdp.experiments.render import Block
from fedfdp.experiments.scales import Scale
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import LocalClient

FLOAT = 4  # bytes of a weight
MNIST_SHAPE, MNIST_CLASSES = (1, 28, 28), 10
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
    return Traffic(method.name, len(to_bytes(broadcast)), len(to_bytes(upload)), w.size(learner.initial()))


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


def table1(scale: Scale) -> tuple[dict[str, object], Block]:
    """Table 1, for JSON and to be shown: every private method, on the scale's model at the size of MNIST."""
    model = models.build(scale.model, input_shape=MNIST_SHAPE, outputs=MNIST_CLASSES, seed=0)
    cells: list[dict[str, object]] = []
    lines = []
    for method in private_methods().values():
        settings = dict(method.settings)
        algorithm = parse(algorithms.find(str(settings.pop("name"))), settings, "algorithm")
        (sent,) = measure(model, input_shape=MNIST_SHAPE, outputs=MNIST_CLASSES, methods=[algorithm])
        paper = COMMUNICATION.get(method.key, ("–", "–"))
        found = {"down": sent.down, "up": sent.up, "down_models": sent.down_models, "up_models": sent.up_models}
        cells.append({"row": method.key, "label": method.label, **found, "paper": paper[0], "paper_extra": paper[1]})
        models_sent = f"{sent.down_models:.4f}", f"{sent.up_models:.4f}"
        lines.append((method.label, str(sent.down), str(sent.up), *models_sent, *paper))
    headers = ("method", "down, bytes", "up, bytes", "down / d", "up / d", "paper: cost", "paper: beside the model")
    title = f"Communication of a client and round, {scale.model} on 28×28"
    content: dict[str, object] = {"experiment": "table1", "scale": scale.name, "model": scale.model, "cells": cells}
    return content, Block(title, headers, tuple(lines))
