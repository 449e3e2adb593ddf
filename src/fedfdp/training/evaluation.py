"""Judges the global model on every client's own records: one pass over all of them, results kept apart by client.

It reads raw records. In a simulation that is a measurement; across machines each holder decides whether to answer.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.records import Weights
from fedfdp.data import Federation
from fedfdp.data.shard import inputs_at
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.models.learner import Learner

BATCH = 256  # records that fit in a core's cache: larger batches are slower


class LocalEvaluator:
    """Judges weights on the test or training records of a federation."""

    def __init__(self, learner: Learner, federation: Federation, performance: Performance | None = None) -> None:
        self.learner, self.federation = learner, federation
        self.performance = performance or Performance()
        self.shares: NDArray[np.float64] = np.asarray(federation.shares, dtype=np.float64)

    def test(self, weights: Weights) -> ClientResults:
        return self._judge(weights, [client.test.index for client in self.federation.clients])

    def train(self, weights: Weights) -> ClientResults:
        return self._judge(weights, [client.train.index for client in self.federation.clients])

    def _judge(self, weights: Weights, indices: list[Tensor]) -> ClientResults:
        records = np.array([len(index) for index in indices], dtype=np.int64)
        rows, owner = torch.cat(indices), torch.repeat_interleave(torch.arange(len(indices)), torch.from_numpy(records))
        loss = torch.zeros(len(indices), dtype=torch.float64)
        right = torch.zeros(len(indices), dtype=torch.float64)
        for part in torch.split(torch.arange(len(rows)), BATCH):
            x, y = inputs_at(self.federation.x, rows[part]), self.federation.y[rows[part]]
            losses, correct = self.learner.judge(weights, x, y)
            loss.index_add_(0, owner[part], losses.double().cpu())
            right.index_add_(0, owner[part], correct.double().cpu())
        with np.errstate(invalid="ignore"):
            means = loss.numpy() / records, right.numpy() / records
        return ClientResults(*means, records, self.shares, self.performance.name, self._measured(weights, indices))

    def _measured(self, weights: Weights, indices: list[Tensor]) -> dict[str, NDArray[np.float64]]:
        """Every metric of outputs, client by client; NaN for one without records."""
        classes = self.federation.classes
        found = {name: np.full(len(indices), np.nan) for name in self.performance.functions(classes)}
        for i, (client, index) in enumerate(zip(self.federation.clients, indices, strict=True)):
            if not found or not len(index):
                continue
            batches = [inputs_at(self.federation.x, part) for part in torch.split(index, BATCH)]
            parts = [self.learner.outputs(weights, batch).cpu() for batch in batches]
            values = self.performance.measure(client.name, torch.cat(parts), self.federation.y[index], classes)
            for name, value in values.items():
                found[name][i] = value
        return found
