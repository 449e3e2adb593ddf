"""The rounds of a run: ask, collect, aggregate, step, and now and then evaluate.

It knows neither files nor screens: it yields what happened, and all it remembers is one record that can be put back.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedfdp.algorithms.base import Algorithm, Broadcast, ServerState, Upload
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.fairness.metrics import ClientResults, measures, psi
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.participation import Participation
from fedfdp.training.protocols import Engine, Evaluator, Members
from fedfdp.training.robust import Conduct, defended
from fedfdp.training.server_optimizer import ServerMemory, ServerOptimizer

DIVERGED = 20.0  # the multiple of the first test loss at which a run is given up

State = TypeVar("State", bound=ServerState)
Memory = TypeVar("Memory")
Reply = TypeVar("Reply", bound=Upload)


@dataclass(frozen=True)
class Plan:
    """What a run computes, fully resolved; independent of who the clients are and how they are reached."""

    algorithm: Algorithm
    privacy: DPSGD | None
    server: ServerOptimizer
    participation: Participation
    rounds: int
    eval_every: int
    seed: int  # decides who takes part in a round
    repeatable: bool  # whether batches and noise come from a seed as well


@dataclass(frozen=True)
class Late(Generic[Reply]):
    """A reply on its way: made in round `made`, here in round `due`."""

    made: int
    due: int
    upload: Reply


@dataclass(frozen=True)
class Progress(Generic[State, Memory, Reply]):
    """All a run needs to go on, and what a checkpoint holds."""

    state: State  # the method's
    server: ServerMemory = field(default_factory=ServerMemory)
    memories: dict[str, Memory] = field(default_factory=dict)  # of the clients
    late: tuple[Late[Reply], ...] = ()
    seconds: float = 0.0
    charged: int = 0  # what the ledgers showed when this was written to disk


@dataclass(frozen=True)
class Guarded(Progress[State, Memory, Reply]):
    """The same where the mean is robust."""

    conduct: dict[str, Conduct] = field(default_factory=dict)  # of the clients


@dataclass(frozen=True)
class Evaluation:
    """The released model's measures, overall and client by client."""

    measures: dict[str, float]  # by name: accuracy, loss, psi, psi_train, …
    clients: ClientResults  # client by client, in the federation's order


@dataclass(frozen=True)
class Step:
    """One finished round."""

    round: int  # rounds done
    rounds: int  # that will be done in all
    took_part: int  # clients whose uploads were used
    evaluation: Evaluation | None  # None where this round was not evaluated


class Trainer:
    """Carries out a plan round by round, with clients that an engine reaches."""

    def __init__(self, plan: Plan, members: Members, engine: Engine, evaluator: Evaluator, state: ServerState) -> None:
        self.plan, self.members, self.engine, self.evaluator = plan, members, engine, evaluator
        # Replaced whole after every round: an interrupt never finds half of one.
        self.progress: Progress[ServerState, object, Upload] = (Guarded if plan.server.robust else Progress)(state)
        self.start = state.weights
        self.evaluating = 0.0  # seconds of the run that were spent on evaluation
        self.events = 0  # released by clients since this trainer was made; ledgers must show as many
        self.diverged = ""  # why the run cannot go on

    @property
    def released(self) -> Weights:
        """The weights that are handed out."""
        return self.plan.server.released(self.progress.state.weights, self.progress.server)

    @property
    def conduct(self) -> Mapping[str, Conduct]:
        """How clients have behaved so far, where the mean is robust."""
        return self.progress.conduct if isinstance(self.progress, Guarded) else {}

    @property
    def own(self) -> dict[str, Weights]:
        """The models of clients that have one of their own, by name."""
        method = self.plan.algorithm
        if not method.personal or not self.engine.keeps_memories:
            return {}
        released = self.released
        return {name: method.holds(released, memory) for name, memory in self.progress.memories.items()}

    def run(self) -> Iterator[Step]:
        """Yields rounds until all are done, the method says so, the run diverges, or no client can pay for another."""
        while self.progress.state.round < self.plan.rounds and not self.plan.algorithm.done(self.progress.state):
            step = self.round()
            if step is None:
                return
            yield step
            if self.diverged:
                return

    def round(self) -> Step | None:
        """One round; None, and nothing changed, if no client can pay for it."""
        plan, method, before, start = self.plan, self.plan.algorithm, self.progress, time.perf_counter()
        now, done = before.state.round, before.state.round + 1
        evaluates = done % plan.eval_every == 0 or done == plan.rounds

        # Ask those who take part.
        who = plan.participation.round(self.members.names, seed=plan.seed, round=now)
        broadcast = method.broadcast(before.state)
        answers = self.engine.round(broadcast, before.memories, who.there, watch=evaluates)

        # Collect one upload at a time, as the sum below asks for it: none is kept but those that are late.
        memories, used = dict(before.memories), 0
        price = sum(event.count for event in method.events(broadcast, plan.privacy)) if plan.privacy else 0
        late = [reply for reply in before.late if reply.due > now]

        def collected() -> Iterator[Upload]:
            nonlocal used
            for upload, memory in answers:
                self.events += price
                delay = who.late.get(upload.client)
                if delay is not None and not plan.participation.asynchronous:
                    continue  # past the deadline: dropped, and the client's memory stays as it was
                if not is_dataclass(memory) or fields(memory):  # an empty one is no news
                    memories[upload.client] = memory
                if delay is not None:
                    own = w.clone(upload.update)  # it may be a view into a buffer of many clients
                    late.append(Late(now, now + delay, replace(upload, update=own)))
                    continue
                used += 1
                yield upload
            for reply in before.late:
                if reply.due <= now:
                    used += 1
                    yield replace(reply.upload, discount=plan.participation.discount(now - reply.made))

        # Aggregate.
        uploads, conduct = self._defended(collected(), broadcast)
        state: ServerState = method.aggregate(before.state, uploads)
        if not used and len(self.engine.unable) == len(self.members.names):
            return None

        # Step.
        weights, server = plan.server.step(before.state.weights, state.weights, before.server)
        state = replace(state, weights=weights)
        seconds = before.seconds + time.perf_counter() - start
        after = replace(before, state=state, server=server, memories=memories, late=tuple(late), seconds=seconds)
        self.progress = replace(after, conduct=conduct) if isinstance(after, Guarded) else after

        # Evaluate.
        self.diverged = "" if w.all_finite(weights) else f"in round {done} the weights are no longer numbers"
        last = done == plan.rounds or method.done(state) or bool(self.diverged)
        evaluation = self.evaluate(last=last) if evaluates or last else None
        return Step(done, plan.rounds, used, evaluation)

    def _defended(self, uploads: Iterator[Upload], broadcast: Broadcast) -> tuple[Iterable[Upload], dict[str, Conduct]]:
        """What the method takes the mean of, and how clients have behaved."""
        plan = self.plan
        if plan.server.robust is None:
            return uploads, {}

        def noise(upload: Upload) -> float:
            return plan.algorithm.noise_in(broadcast, plan.privacy, upload.records, w.size(upload.update))

        server = plan.server
        return defended(plan.server.robust, uploads, self.conduct, noise, trim=server.trim, norm=server.norm)

    def evaluate(self, *, last: bool) -> Evaluation:
        """Measures on the clients' test records; at the end also Ψ on their training records, and each one alone."""
        start = time.perf_counter()
        judged: tuple[Any, ...] = (self.released, own) if (own := self.own) else (self.released,)
        results = self.evaluator.test(*judged)
        if last:
            results = replace(results, of_outputs={**results.of_outputs, **self.evaluator.alone()})
        found = measures(results)
        self._judge(found["loss"], known=bool(results.records.sum()))
        last = last or bool(self.diverged)
        if local := self.engine.local_losses:
            shares = dict(zip(self.members.names, results.shares.tolist(), strict=True))
            with np.errstate(over="ignore", invalid="ignore"):
                found["psi_local"] = psi(list(local.values()), [shares[name] for name in local])
        if last:
            found["psi_train"] = measures(self.evaluator.train(*judged))["psi"]
        took = time.perf_counter() - start
        self.evaluating += took
        self.progress = replace(self.progress, seconds=self.progress.seconds + took)
        return Evaluation(found, results)

    def _judge(self, loss: float, *, known: bool) -> None:
        """Notes a model that is far worse than the one that training began with. `known`: there are test records."""
        classes, after = self.members.classes, f"after round {self.progress.state.round}"
        if not known or self.diverged:
            return
        if not math.isfinite(loss):
            self.diverged = f"{after} the test loss is no longer a number"
        elif loss > DIVERGED * (math.log(classes) if classes else 1.0):  # else it cannot be that much worse
            first = math.log(classes) if classes else measures(self.evaluator.test(self.start))["loss"]
            if loss > DIVERGED * first:
                self.diverged = f"{after} the test loss is {loss:.3g}, and it began at {first:.3g}"

    def progress_type(self) -> type[Progress[ServerState, object, Upload]]:
        """What a checkpoint is read back as: `Progress` of the method's own records."""
        method = self.plan.algorithm
        kind: Any = Guarded if self.plan.server.robust else Progress
        return kind[method.State, method.Memory, method.Reply]  # type: ignore[no-any-return]
