"""The model's measures across machines: on test records of nodes that opted in, otherwise from released losses.

It asks only nodes that have said that they answer, and never about training records.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfdp.algorithms.base import Algorithm, Upload
from fedfdp.core import records
from fedfdp.core.errors import DataError
from fedfdp.core.records import Weights
from fedfdp.engines.flower.checks import HEADROOM
from fedfdp.engines.flower.messages import Judge, Judged, Question
from fedfdp.engines.flower.roster import Roster
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.protocols import NOBODY, Own

log = logging.getLogger("fedfdp.server")
SMOOTHING = 0.9  # of released losses, over rounds


@dataclass
class ReleasedLosses:
    """F̄_i of each client that has released one, smoothed over rounds, and the variance of the noise in it.

    For display where nobody lets the model be judged on raw records. It reads uploads alone.
    """

    algorithm: Algorithm
    privacy: DPSGD | None
    means: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    def note(self, upload: Upload) -> None:
        """An upload that was used; without a loss in it there is nothing to note."""
        loss, client = self.algorithm.loss_of(upload), upload.client
        if loss is None:
            return
        variance = self._variance(client, upload.records)
        keep, add = (SMOOTHING, 1 - SMOOTHING) if client in self.means else (0.0, 1.0)
        self.means[client] = keep * self.means.get(client, 0.0) + add * loss
        self.noise[client] = keep**2 * self.noise.get(client, 0.0) + add**2 * variance
        self._last[client] = loss

    def _variance(self, client: str, records: int) -> float:
        """(σ_l·C_l/(q·n_i))², the noise of one release. Where uploads do not tell C_l it is 0: nothing is taken off."""
        if self.privacy is None:
            return 0.0
        bound = self.algorithm.loss_bound_after(self._last.get(client))
        return float(self.privacy.sigma_loss * bound / (self.privacy.q * records)) ** 2


@dataclass
class RemoteEvaluator:
    """Judges weights at the nodes; `answered` says how many did when last asked."""

    roster: Roster
    released: ReleasedLosses  # what nodes uploaded anyway
    performance: Performance
    run: str
    terms: str
    deadline: float  # seconds
    last: Callable[[str], int]  # the latest round in which a node's upload was used
    fit: Callable[[str, Weights], Weights]  # what a node gets of these weights: its slices, if it is narrower
    answered: int = 0
    _packed: tuple[Weights | None, bytes] = (None, b"")
    counts: dict[str, int] = field(default_factory=dict)  # evaluations that each node says it has answered, in all runs

    def opted_in(self) -> dict[str, int]:
        """The nodes that answer evaluation, and how many they have answered so far."""
        willing = [name for name in self.roster.names if (h := self.roster.hellos.get(name)) and h.evaluates]
        return {name: self.counts.get(name, 0) for name in willing}

    def test(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        """What the nodes say. One that has a model of its own judges that: it never leaves the node."""
        judged = self._ask(weights)
        self.answered = len(judged)
        self.counts.update({name: each.answered for name, each in judged.items()})
        if not judged:
            return self._as_released()
        return self._results({name: (j.loss, j.accuracy, j.records) for name, j in judged.items()})

    def train(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        """Unknown for every node: measures of training records never leave it."""
        return self._results({})

    def alone(self) -> dict[str, NDArray[np.float64]]:
        """Nothing: what a holder's own model reaches stays with the holder."""
        return {}

    def _as_released(self) -> ClientResults:
        """The released private losses, smoothed over rounds, with the variance that the noise adds to each."""
        found = self._results({name: (loss, math.nan, 1) for name, loss in self.released.means.items()})
        return replace(found, noise=np.array([self.released.noise.get(name, 0.0) for name in self.roster.names]))

    def _results(self, by_name: dict[str, tuple[float, float, int]]) -> ClientResults:
        rows = [by_name.get(name, (math.nan, math.nan, 0)) for name in self.roster.names]
        sizes = np.array(self.roster.sizes, dtype=np.float64)
        losses, accuracies, counts = (np.array(column) for column in zip(*rows, strict=True))
        return ClientResults(
            losses.astype(np.float64),
            accuracies.astype(np.float64),
            counts.astype(np.int64),
            sizes / max(sizes.sum(), 1.0),
            self.performance.name,
        )

    def _ask(self, weights: Weights) -> dict[str, Judged]:
        roster = self.roster
        willing = [name for name, hello in roster.hellos.items() if hello.evaluates]
        ids = {roster.exchange.ids[name]: name for name in roster.exchange.names_present(willing)}
        last = {node: self.last(name) for node, name in ids.items()}  # later uploads were not used
        questions = {
            node: Question("evaluate", self.run, self.terms, last[node] + 1, last[node], self._judge(name, weights))
            for node, name in ids.items()
        }
        found: dict[str, Judged] = {}
        for node, answer in roster.exchange.ask(questions, deadline=self.deadline, limit=HEADROOM):
            try:
                if isinstance(answer, DataError):
                    raise answer
                if answer.status != "ok":
                    raise DataError(answer.reason)
                found[ids[node]] = records.from_bytes(Judged, answer.record)
            except DataError as error:
                log.warning("%s did not evaluate: %s", ids[node], error)
        return found

    def _judge(self, name: str, weights: Weights) -> bytes:
        fitted = self.fit(name, weights)
        if fitted is not weights:
            return records.to_bytes(Judge(fitted))
        if self._packed[0] is not weights:  # the same for all nodes that hold the full model
            self._packed = weights, records.to_bytes(Judge(weights))
        return self._packed[1]
