"""Judges the global model on every client's own records: one pass over all of them, results kept apart by client.

It reads raw records. In a simulation that is a measurement; across machines each holder decides whether to answer.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.records import Weights
from fedfdp.data import ClientData, Federation
from fedfdp.data.shard import inputs_at
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.models.learner import Learner
from fedfdp.training.protocols import NOBODY, Own

BATCH = 256  # records that fit in a core's cache: larger batches are slower


class LocalEvaluator:
    """Judges weights on the test or training records of a federation."""

    def __init__(self, learner: Learner, federation: Federation, performance: Performance | None = None) -> None:
        self.learner, self.federation = learner, federation
        self.performance = performance or Performance()
        self.shares: NDArray[np.float64] = np.asarray(federation.shares, dtype=np.float64)

    def test(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        return self._each(weights, own, [client.test.index for client in self.federation.clients])

    def train(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        return self._each(weights, own, [client.train.index for client in self.federation.clients])

    def _each(self, weights: Weights, own: Own, indices: list[Tensor]) -> ClientResults:
        """All clients in one pass, or each by itself where they have models of their own."""
        if not own and self.learner.first is None:
            return self._judge(weights, indices)
        found = []
        for client, index in zip(self.federation.clients, indices, strict=True):
            learner = self.learner.of(client.name)
            whole = learner.whole(own.get(client.name, weights))
            found.append(self._judge(whole, [index], learner, self.federation.part(client.name), (client,)))
        return replace(
            found[0],
            losses=np.array([result.losses[0] for result in found]),
            accuracies=np.array([result.accuracies[0] for result in found]),
            records=np.array([result.records[0] for result in found]),
            shares=self.shares,
            of_outputs={name: np.array([r.of_outputs[name][0] for r in found]) for name in found[0].of_outputs},
        )

    def _judge(
        self,
        weights: Weights,
        indices: list[Tensor],
        learner: Learner | None = None,
        pool: Federation | None = None,
        clients: tuple[ClientData, ...] | None = None,
    ) -> ClientResults:
        """These records of these clients; of all, in the federation's own pool, where nothing else is said."""
        learner, pool = learner or self.learner, pool or self.federation
        records = np.array([len(index) for index in indices], dtype=np.int64)
        rows, owner = torch.cat(indices), torch.repeat_interleave(torch.arange(len(indices)), torch.from_numpy(records))
        loss = torch.zeros(len(indices), dtype=torch.float64)
        right = torch.zeros(len(indices), dtype=torch.float64)
        for part in torch.split(torch.arange(len(rows)), BATCH):
            x, y = inputs_at(pool.x, rows[part]), pool.y[rows[part]]
            losses, correct = learner.judge(weights, x, y)
            loss.index_add_(0, owner[part], losses.double().cpu())
            right.index_add_(0, owner[part], correct.double().cpu())
        with np.errstate(invalid="ignore"):
            means = loss.numpy() / records, right.numpy() / records
        measured = self._measured(weights, indices, learner, pool, clients or self.federation.clients)
        return ClientResults(*means, records, self.shares, self.performance.name, measured)

    def _measured(
        self,
        weights: Weights,
        indices: list[Tensor],
        learner: Learner,
        pool: Federation,
        clients: tuple[ClientData, ...],
    ) -> dict[str, NDArray[np.float64]]:
        """Every metric of outputs, client by client; NaN for one without records."""
        classes = pool.classes
        found = {name: np.full(len(indices), np.nan) for name in self.performance.functions(classes)}
        for i, (client, index) in enumerate(zip(clients, indices, strict=True)):
            if not found or not len(index):
                continue
            batches = [inputs_at(pool.x, part) for part in torch.split(index, BATCH)]
            parts = [learner.outputs(weights, batch).cpu() for batch in batches]
            values = self.performance.measure(client.name, torch.cat(parts), pool.y[index], classes)
            for name, value in values.items():
                found[name][i] = value
        return found
