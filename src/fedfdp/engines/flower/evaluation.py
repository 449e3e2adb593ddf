"""The model's measures across machines: what nodes that opted in answer of their test records, otherwise what was
released anyway.

It asks nobody who has not said that it answers, and nobody about training records.
"""

import logging
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfdp.core import records
from fedfdp.core.errors import DataError
from fedfdp.core.records import Weights
from fedfdp.engines.flower.checks import HEADROOM
from fedfdp.engines.flower.engine import FlowerEngine
from fedfdp.engines.flower.messages import Judge, Judged, Question
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance

log = logging.getLogger("fedfdp.server")


@dataclass
class RemoteEvaluator:
    """Judges weights at the nodes; `answered` says how many did when last asked."""

    engine: FlowerEngine
    performance: Performance
    answered: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # evaluations that each node says it has answered, in all runs

    def opted_in(self) -> dict[str, int]:
        """The nodes that answer evaluation, and how many they have answered so far."""
        willing = [name for name in self.engine.clients if (h := self.engine.roster.hellos.get(name)) and h.evaluates]
        return {name: self.counts.get(name, 0) for name in willing}

    @property
    def federation(self) -> object:
        return self.engine.roster

    @property
    def shares(self) -> NDArray[np.float64]:
        sizes = np.array([member.size for member in self.engine.roster.clients], dtype=np.float64)
        shares: NDArray[np.float64] = sizes / max(sizes.sum(), 1.0)
        return shares

    def test(self, weights: Weights) -> ClientResults:
        judged = self._ask(weights)
        self.answered = len(judged)
        self.counts.update({name: each.answered for name, each in judged.items()})
        if not judged:
            return self._released()
        return self._results({name: (j.loss, j.accuracy, j.records) for name, j in judged.items()})

    def train(self, weights: Weights) -> ClientResults:
        """Not known here: measures of training records never leave a node."""
        return self._results({})

    def _released(self) -> ClientResults:
        """The private losses, smoothed over rounds; the noise's own part of their spread is known, and said."""
        released = self.engine.losses
        found = self._results({name: (loss, math.nan, 1) for name, loss in released.means.items()})
        return replace(found, noise=np.array([released.noise.get(name, 0.0) for name in self.engine.clients]))

    def _results(self, by_name: dict[str, tuple[float, float, int]]) -> ClientResults:
        rows = [by_name.get(name, (math.nan, math.nan, 0)) for name in self.engine.clients]
        losses, accuracies, counts = (np.array(column) for column in zip(*rows, strict=True))
        return ClientResults(
            losses.astype(np.float64),
            accuracies.astype(np.float64),
            counts.astype(np.int64),
            self.shares,
            self.performance.name,
        )

    def _ask(self, weights: Weights) -> dict[str, Judged]:
        engine, roster = self.engine, self.engine.roster
        willing = [name for name, hello in roster.hellos.items() if hello.evaluates]
        record = records.to_bytes(Judge(weights)) if willing else b""
        ids = {roster.exchange.ids[name]: name for name in roster.exchange.names_present(willing)}
        questions = {node: Question("evaluate", engine.arrivals.run, engine.terms, record=record) for node in ids}
        found: dict[str, Judged] = {}
        for node, answer in roster.exchange.ask(questions, deadline=engine.settings.deadline, limit=HEADROOM):
            try:
                if isinstance(answer, DataError):
                    raise answer
                if answer.status != "ok":
                    raise DataError(answer.reason)
                found[ids[node]] = records.from_bytes(Judged, answer.record)
            except DataError as error:
                log.warning("%s did not evaluate: %s", ids[node], error)
        return found
