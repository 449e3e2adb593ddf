"""The rounds of a run: broadcast, uploads, aggregate, step, and now and then a look at the result.

It knows neither files nor screens: it yields what happened, and all it remembers is one record that can be put back.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedfdp.algorithms.base import Algorithm
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.fairness.metrics import ClientResults, measures, psi
from fedfdp.training.evaluation import Evaluator
from fedfdp.training.participation import Participation
from fedfdp.training.server_optimizer import ServerMemory, ServerOptimizer


class Engine(Protocol):
    """Moves broadcasts to clients and uploads back."""

    local_losses: dict[str, float]
    clients: Sequence[str]
    unable: set[str]  # those that could not pay when they were last asked

    def round(
        self, broadcast: Any, memories: Mapping[str, Any], asked: Sequence[str] | None = None, *, watch: bool = False
    ) -> Iterator[tuple[Any, Any]]: ...


@dataclass(frozen=True)
class Late:
    """A reply on its way: made in round `made`, here in round `due`."""

    made: int
    due: int
    upload: Any


@dataclass(frozen=True)
class Progress:
    """All a run needs to go on: the method's state, the server's, what each client remembers, what is on its way."""

    state: Any
    server: ServerMemory = field(default_factory=ServerMemory)
    memories: dict[str, Any] = field(default_factory=dict)
    late: tuple[Late, ...] = ()
    seconds: float = 0.0
    charged: int = 0  # what the ledgers showed when this was written to disk


@dataclass(frozen=True)
class Evaluation:
    """The released model's measures, overall and client by client."""

    measures: dict[str, float]  # by name: accuracy, loss, psi and its kin
    clients: ClientResults  # client by client, in the federation's order


@dataclass(frozen=True)
class Step:
    """One finished round."""

    round: int  # rounds done
    rounds: int  # that will be done in all
    took_part: int  # clients whose uploads were used
    evaluation: Evaluation | None  # None where this round was not evaluated


class Trainer:
    """Runs a method round by round on an engine."""

    def __init__(
        self,
        algorithm: Algorithm,
        engine: Engine,
        evaluator: Evaluator,
        *,
        server: ServerOptimizer,
        participation: Participation,
        seed: int,
        progress: Progress,
        rounds: int,
        eval_every: int,
    ) -> None:
        self.algorithm, self.engine, self.evaluator, self.server = algorithm, engine, evaluator, server
        self.participation, self.seed = participation, seed
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
            arrivals = _Arrivals(self, before, watch=look)
            state = self.algorithm.aggregate(before.state, arrivals)
            if not arrivals.used and len(self.engine.unable) == len(self.engine.clients):
                return
            weights, server = self.server.step(before.state.weights, state.weights, before.server)
            seconds = before.seconds + time.perf_counter() - start
            state = replace(state, weights=weights)
            self.progress = Progress(state, server, arrivals.memories, tuple(arrivals.late), seconds)
            last = done == self.rounds or self.algorithm.done(self.progress.state)
            evaluation = self.evaluate(last=last) if look or last else None
            yield Step(done, self.rounds, arrivals.used, evaluation)

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
        late = make_dataclass("Late", [("made", int), ("due", int), ("upload", method.Reply)], frozen=True)
        fields = [
            ("state", method.State),
            ("server", ServerMemory),
            ("memories", dict[str, method.Memory]),  # type: ignore[name-defined]
            ("late", tuple[late, ...]),  # type: ignore[valid-type]
            ("seconds", float),
            ("charged", int),
        ]
        return make_dataclass("Progress", fields, frozen=True)


class _Arrivals:
    """The uploads that reach the server in one round, handed on one at a time; then, what is left of the round."""

    def __init__(self, trainer: Trainer, before: Progress, *, watch: bool) -> None:
        self.trainer, self.before, self.watch = trainer, before, watch
        self.memories, self.used = dict(before.memories), 0
        self.late = [reply for reply in before.late if reply.due > before.state.round]

    def __iter__(self) -> Iterator[Any]:
        trainer, now = self.trainer, self.before.state.round
        rule = trainer.participation
        who = rule.round(trainer.engine.clients, seed=trainer.seed, round=now)
        broadcast = trainer.algorithm.broadcast(self.before.state)
        for upload, memory in trainer.engine.round(broadcast, self.before.memories, who.there, watch=self.watch):
            delay = who.late.get(upload.client)
            if delay is not None and not rule.asynchronous:
                continue  # past the deadline: the client knows it too, and remembers the round as one it missed
            self.memories[upload.client] = memory
            if delay is not None:
                kept = replace(upload, update=w.clone(upload.update))  # not with the sums of a whole wave of clients
                self.late.append(Late(now, now + delay, kept))
                continue
            self.used += 1
            yield upload
        for reply in self.before.late:
            if reply.due <= now:
                self.used += 1
                yield replace(reply.upload, discount=rule.discount(now - reply.made))
