"""The driver's side: it charges every ledger, hands out the questions, and takes the answers in the order asked.

Records are placed on workers once, a block of clients on each; a round's message is put into the cluster once. Workers
take turns, group by group. One that is lost is started again with its records, and asked again.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import ray
import torch
from ray.exceptions import RayActorError, RayError

from fedfdp.algorithms.base import Algorithm, Broadcast, Upload
from fedfdp.core.errors import FedFDPError
from fedfdp.data import ClientData, Federation
from fedfdp.data.domains import Domains
from fedfdp.engines.local import LocalEngine, Wave
from fedfdp.engines.ray.cluster import opened
from fedfdp.engines.ray.settings import Ray
from fedfdp.engines.ray.worker import Answered, Asked, Job, Worker
from fedfdp.models.learner import Learner

log = logging.getLogger("fedfdp.ray")

PATIENCE = 20  # how often a question is asked again because its worker was lost
AHEAD = 4  # questions that wait at a worker: enough to keep it busy, few enough to keep answers out of memory
BY_ONE = 16  # clients of one question where each is computed by itself


@dataclass
class Sent:
    """A question that was asked: of whom, what, and where its answer will be."""

    home: int  # the number of the block that the clients are in
    waves: list[Wave]
    message: "ray.ObjectRef[Broadcast]"
    worker: Any = None
    answer: Any = None


class RayEngine(LocalEngine):
    """Runs a method's clients on the workers of a Ray cluster."""

    def __init__(
        self, settings: Ray, federation: Federation, learner: Learner, algorithm: Algorithm, **options: Any
    ) -> None:
        """`options` are those of `LocalEngine`."""
        super().__init__(federation, learner, algorithm, **options)
        self._cluster = ExitStack()
        count = self._cluster.enter_context(opened(settings, len(federation.clients)))
        self.blocks = blocks(federation.clients[:], count)
        self.home = {client.name: number for number, block in enumerate(self.blocks) for client in block}
        device = "cuda" if settings.gpus else str(learner.device)
        given = {name: value for name, value in options.items() if name != "book"}  # no worker has a ledger
        job = ray.put(Job(learner, algorithm, max(1, int(settings.cpus)), device, **given))
        self._kind = ray.remote(num_cpus=settings.cpus, num_gpus=settings.gpus)(Worker)
        self._given = [(ray.put(_placed(federation, block)), job) for block in self.blocks]  # also for a second start
        self.workers: list[Any] = [self._kind.remote(*given) for given in self._given]

    def _waves(self, clients: Sequence[ClientData]) -> Iterator[Sequence[ClientData]]:
        """As for one process, but each worker has groups of its own. They take turns, so that none waits."""
        mine: list[list[ClientData]] = [[] for _ in self.blocks]
        for client in clients:
            mine[self.home[client.name]].append(client)
        waves, each = super()._waves, 1 if self.fused else BY_ONE
        left = [waves(some) for some in mine]
        while turn := [wave for its in left for wave in islice(its, each)]:
            yield from turn

    def round(
        self,
        broadcast: Broadcast,
        memories: Mapping[str, object],
        asked: Sequence[str] | None = None,
        *,
        watch: bool = False,
    ) -> Iterator[tuple[Upload, object]]:
        """As `Engine.round`: who is charged is asked at once, while the next are charged."""
        under_way: deque[Sent] = deque()
        for question in self._questions(broadcast, memories, asked):
            under_way.append(self._ask(question, watch))
            if len(under_way) >= AHEAD * len(self.blocks):
                yield from self._answer(under_way.popleft(), watch)
        while under_way:
            yield from self._answer(under_way.popleft(), watch)

    def _questions(
        self, broadcast: Broadcast, memories: Mapping[str, object], asked: Sequence[str] | None
    ) -> Iterator[Sent]:
        """What is asked of the workers, each question when its clients are charged."""
        message, alone = ray.put(broadcast), None  # `alone`: clients that are computed by themselves travel together
        for wave in self.charged(broadcast, memories, asked):
            if not wave.clients:
                continue
            home, single = self.home[wave.clients[0][0].name], len(wave.clients) == 1
            at = message if wave.message is broadcast else ray.put(wave.message)
            if alone and single and (home, at) == (alone.home, alone.message) and len(alone.waves) < BY_ONE:
                alone.waves.append(wave)
                continue
            if alone:
                yield alone
            alone = Sent(home, [wave], at)
            if not single:
                yield alone
                alone = None
        if alone:
            yield alone

    def _ask(self, question: Sent, watch: bool) -> Sent:
        asked = [_asked(wave) for wave in question.waves]
        requests = [wave.request for wave in question.waves]
        question.worker = self.workers[question.home]
        question.answer = question.worker.answer.remote(question.message, requests, asked, watch)
        return question

    def _answer(self, question: Sent, watch: bool) -> Iterator[tuple[Upload, object]]:
        """The answer to a question, which is asked again if its worker was lost."""
        for _ in range(PATIENCE):
            try:
                found: Answered = ray.get(question.answer)
            except RayActorError:
                if self.workers[question.home] is question.worker:
                    log.warning("worker %s was lost; its clients are asked again", question.home)
                    self.workers[question.home] = self._kind.remote(*self._given[question.home])
                if not self.randomness.repeatable:
                    question = self._paid_again(question)
                if not question.waves:
                    return
                self._ask(question, watch)
                continue
            except RayError as error:  # what went wrong in the worker itself
                cause = getattr(error, "cause", None)
                raise cause if isinstance(cause, Exception) else FedFDPError(f"engine ray: {error}") from None
            self.local_losses.update(found.local_losses)
            yield from found.uploads
            return
        raise FedFDPError(f"engine ray: worker {question.home} was lost {PATIENCE} times in one round; see its log")

    def _paid_again(self, question: Sent) -> Sent:
        """Without a seed, the answer to a second question is another release: it is charged for too."""
        waves = []
        for wave in question.waves:
            paid = ((self._charged(c.data, c.round, memory, wave.request), memory) for c, memory in wave.clients)
            waves.append(replace(wave, clients=[(client, memory) for client, memory in paid if client is not None]))
        return replace(question, waves=[wave for wave in waves if wave.clients])

    def close(self) -> None:
        """Ends the workers, and the cluster if it was started here."""
        for worker in self.workers:
            ray.kill(worker)
        self._cluster.close()


def _asked(wave: Wave) -> Asked:
    rows = [(client.name, client.attempt, client.request, memory) for client, memory in wave.clients]
    return Asked(*map(list, zip(*rows, strict=True)))


def blocks(clients: Sequence[ClientData], count: int) -> list[list[ClientData]]:
    """The clients in so many parts, one after the other, with about as many records each."""
    total, seen, parts = sum(len(client.train) for client in clients), 0, list[list[ClientData]]()
    for number, client in enumerate(clients):
        left, room = len(clients) - number, count - len(parts)
        if not parts or (room and (seen * count >= total * len(parts) or left <= room)):
            parts.append([])
        parts[-1].append(client)
        seen += len(client.train)
    return parts


def _placed(federation: Federation, block: Sequence[ClientData]) -> Federation:
    """The training records of these clients alone."""
    if isinstance(federation, Domains):
        return replace(federation, clients=tuple(block))
    rows = torch.cat([client.train.index for client in block])
    x, y, unit = federation.x[rows], federation.y[rows], block[0].train.unit
    unit = None if unit is None else unit[rows]
    clients, start = [], 0
    for client in block:
        index = torch.arange(start, start := start + len(client.train))
        train = replace(client.train, x=x, y=y, index=index, unit=unit)
        clients.append(ClientData(client.name, train, replace(train, index=index[:0])))
    return replace(federation, clients=tuple(clients), x=x, y=y)
