"""What a worker of the cluster does: it holds the records of its clients and computes their rounds with `LocalEngine`.

It has no ledger: the driver has charged for whatever it is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from fedfdp.algorithms.base import Algorithm, Broadcast, Upload
from fedfdp.core.weights import Weights
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine, Request, Wave
from fedfdp.models.learner import Learner
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Randomness
from fedfdp.training.client import LocalClient


@dataclass(frozen=True)
class Asked:
    """What some clients are asked, each in its place: a few lists travel much faster than many records."""

    names: list[str]
    attempts: list[int]
    requests: list[str]  # digests of all that an answer depends on, the keys of batches and noise
    memories: list[object]


@dataclass(frozen=True)
class Answered:
    """What the clients of one question answer, and the losses of their own models where the round is watched."""

    uploads: list[tuple[Upload, object]]
    local_losses: dict[str, float]


@dataclass(frozen=True)
class Job:
    """What is the same for all workers and rounds."""

    learner: Learner
    algorithm: Algorithm
    threads: int
    device: str
    privacy: DPSGD | None
    randomness: Randomness
    fused: bool = True


class Worker:
    """Some clients of a run."""

    def __init__(self, federation: Federation, job: Job) -> None:
        torch.set_num_threads(job.threads)
        self.device = torch.device(job.device)
        learner = job.learner if job.learner.device == self.device else job.learner.on(job.device)
        self.engine = LocalEngine(
            federation,
            learner,
            job.algorithm,
            privacy=job.privacy,
            randomness=job.randomness,
            book=None,
            fused=job.fused,
        )
        self.clients = {client.name: client for client in federation.clients}

    def answer(
        self, message: Broadcast, requests: Sequence[Request | None], asked: Sequence[Asked], watch: bool
    ) -> Answered:
        """The uploads of these clients, each group of them computed together, in the order asked."""
        here, back, found = moved(message, self.device), torch.device("cpu"), list[tuple[Upload, object]]()
        self.engine.local_losses = {}
        for request, group in zip(requests, asked, strict=True):
            wave = Wave(list(self._clients(group, message.round)), here, request)
            for upload, memory in self.engine.answers(wave, watch=watch):
                found.append((moved(upload, back), moved(memory, back)))
        return Answered(found, self.engine.local_losses)

    def _clients(self, asked: Asked, round: int) -> Iterator[tuple[LocalClient, object]]:
        engine = self.engine
        columns = zip(asked.names, asked.attempts, asked.requests, asked.memories, strict=True)
        for name, attempt, request, memory in columns:
            client = LocalClient(
                self.clients[name],
                engine.learner.of(name),
                privacy=engine.privacy,
                randomness=engine.randomness,
                round=round,
                attempt=attempt,
                request=request,
            )
            yield client, moved(memory, self.device)


def moved(record: Any, device: torch.device) -> Any:
    """A record with its weights on this device; the same object where they are there already."""
    if isinstance(record, Weights):
        there = all(vector.device == device for vector in record.vectors)
        return record if there else Weights(record.shapes, tuple(v.to(device) for v in record.vectors), record.homes)
    if not is_dataclass(record) or isinstance(record, type):
        return record
    changed = {f.name: (value, moved(value, device)) for f in fields(record) if (value := getattr(record, f.name))}
    new = {name: after for name, (before, after) in changed.items() if after is not before}
    return replace(record, **new) if new else record
