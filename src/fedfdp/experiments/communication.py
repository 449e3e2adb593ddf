"""Table 1: what a round of each method sends, counted in bytes of the records as they are sent. Trains nothing."""

from dataclasses import asdict, dataclass

from fedfdp import algorithms, models
from fedfdp.core.settings import parse
from fedfdp.experiments import traffic
from fedfdp.experiments.methods import private_methods
from fedfdp.experiments.paper import COMMUNICATION
from fedfdp.experiments.render import Block
from fedfdp.experiments.scales import Scale

MNIST_SHAPE, MNIST_CLASSES = (1, 28, 28), 10


@dataclass(frozen=True)
class Sent:
    """Bytes to and from one client in one round, and the same in models of d weights."""

    row: str
    label: str
    down: int
    up: int
    down_models: float
    up_models: float
    paper: str
    paper_extra: str


def communication(scale: Scale) -> list[Sent]:
    """A row for each private method, on the scale's model at the size of MNIST."""
    model = models.build(scale.model, input_shape=MNIST_SHAPE, outputs=MNIST_CLASSES, seed=0)
    rows = []
    for method in private_methods().values():
        settings = dict(method.settings)
        algorithm = parse(algorithms.find(str(settings.pop("name"))), settings, "algorithm")
        (found,) = traffic.measure(model, input_shape=MNIST_SHAPE, outputs=MNIST_CLASSES, methods=[algorithm])
        cost, extra = COMMUNICATION.get(method.key, ("–", "–"))
        sizes = (found.down, found.up, found.down_models, found.up_models)
        rows.append(Sent(method.key, method.label, *sizes, cost, extra))
    return rows


def block(rows: list[Sent], scale: Scale) -> Block:
    headers = ("method", "down, bytes", "up, bytes", "down / d", "up / d", "paper: cost", "paper: beside the model")
    lines = tuple(
        (r.label, str(r.down), str(r.up), f"{r.down_models:.4f}", f"{r.up_models:.4f}", r.paper, r.paper_extra)
        for r in rows
    )
    return Block(f"Communication of a client and round, {scale.model} on 28×28", headers, lines)


def to_dict(rows: list[Sent], scale: Scale) -> dict[str, object]:
    return {"experiment": "table1", "scale": scale.name, "model": scale.model, "cells": [asdict(row) for row in rows]}
