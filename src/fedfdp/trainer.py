"""The rounds of a run: broadcast, uploads, aggregate, step, and now and then a look at the result.

It knows neither files nor screens: it yields what happened, and all it remembers is one record that can be put back.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedfdp.algorithms.base import Algorithm
from fedfdp.evaluation import Evaluator
from fedfdp.fairness.metrics import ClientResults, measures, psi
from fedfdp.records import Weights
from fedfdp.server import Server, ServerMemory


class Engine(Protocol):
    """Moves broadcasts to clients and uploads back."""

    local_losses: dict[str, float]

    def round(
        self, broadcast: Any, memories: Mapping[str, Any], *, watch: bool = False
    ) -> Iterator[tuple[Any, Any]]: ...


@dataclass(frozen=True)
class Progress:
    """All a run needs to go on: the method's state, the server's, and what each client remembers."""

    state: Any
    server: ServerMemory = field(default_factory=ServerMemory)
    memories: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Evaluation:
    """The released model's measures, overall and client by client."""

    measures: dict[str, float]
    clients: ClientResults


@dataclass(frozen=True)
class Step:
    """One finished round."""

    round: int  # rounds done
    rounds: int
    took_part: int
    evaluation: Evaluation | None


class Trainer:
    """Runs a method round by round on an engine."""

    def __init__(
        self,
        algorithm: Algorithm,
        engine: Engine,
        evaluator: Evaluator,
        *,
        server: Server,
        progress: Progress,
        rounds: int,
        eval_every: int,
    ) -> None:
        self.algorithm, self.engine, self.evaluator, self.server = algorithm, engine, evaluator, server
        self.rounds, self.eval_every = rounds, eval_every
        self.progress = progress  # replaced whole after every round, so an interrupt finds no half of one
        self.evaluating = 0.0  # seconds spent looking, not training

    @property
    def released(self) -> Weights:
        """The model that is handed out."""
        return self.server.released(self.progress.state.weights, self.progress.server)

    def run(self) -> Iterator[Step]:
        """Rounds until all are done, the method is, or no client can afford another."""
        while self.progress.state.round < self.rounds and not self.algorithm.done(self.progress.state):
            start, before = time.perf_counter(), self.progress
            done = before.state.round + 1
            look = done % self.eval_every == 0 or done == self.rounds
            memories = dict(before.memories)
            state, took_part = self._aggregate(before, memories, look)
            if not took_part:
                return
            weights, server = self.server.step(before.state.weights, state.weights, before.server)
            seconds = before.seconds + time.perf_counter() - start
            self.progress = Progress(replace(state, weights=weights), server, memories, seconds)
            last = done == self.rounds or self.algorithm.done(self.progress.state)
            evaluation = self.evaluate(last=last) if look or last else None
            yield Step(done, self.rounds, took_part, evaluation)

    def _aggregate(self, before: Progress, memories: dict[str, Any], look: bool) -> tuple[Any, int]:
        """The method's new state and how many took part; their new memories are put into `memories`."""
        took_part = 0

        def uploads() -> Iterator[Any]:
            nonlocal took_part
            broadcast = self.algorithm.broadcast(before.state)
            for upload, memory in self.engine.round(broadcast, before.memories, watch=look):
                memories[upload.client] = memory
                took_part += 1
                yield upload

        return self.algorithm.aggregate(before.state, uploads()), took_part

    def evaluate(self, *, last: bool) -> Evaluation:
        """Measures on the clients' test records, and at the end Ψ on their training records too."""
        start = time.perf_counter()
        released = self.released
        results = self.evaluator.test(released)
        found = measures(results)
        if local := self.engine.local_losses:
            shares = dict(zip((c.name for c in self.evaluator.federation.clients), self.evaluator.shares, strict=True))
            with np.errstate(over="ignore", invalid="ignore"):
                found["psi_local"] = psi(list(local.values()), [shares[name] for name in local])
        if last:
            found["psi_train"] = measures(self.evaluator.train(released))["psi"]
        took = time.perf_counter() - start
        self.evaluating += took
        self.progress = replace(self.progress, seconds=self.progress.seconds + took)
        return Evaluation(found, results)

    def progress_type(self) -> type[Any]:
        """`Progress` with the method's own records in it: what a checkpoint is read back as."""
        method = self.algorithm
        fields = [
            ("state", method.State),
            ("server", ServerMemory),
            ("memories", dict[str, method.Memory]),  # type: ignore[name-defined]
            ("seconds", float),
        ]
        return make_dataclass("Progress", fields, frozen=True)
