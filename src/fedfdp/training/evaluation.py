"""Judges the global model on every client's own records: one pass over all of them, results kept apart by client.

It reads raw records. In a simulation that is a measurement; across machines each holder decides whether to answer.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.records import Weights
from fedfdp.data import Federation
from fedfdp.fairness.metrics import Answers, ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.models.learner import Learner
from fedfdp.training.alone import alone, cheap

BATCH = 256  # records that fit in a core's cache: larger batches are slower
MOST_KEPT = 50_000_000  # numbers that a model answers with; where there are more, answers are not kept


class LocalEvaluator:
    """Judges weights on the test or training records of a federation.

    `answers`: whether the answers themselves are kept too, for the metrics of all test records together.
    """

    def __init__(
        self,
        learner: Learner,
        federation: Federation,
        performance: Performance | None = None,
        *,
        answers: bool = True,
    ) -> None:
        self.learner, self.federation = learner, federation
        self.performance = performance or Performance()
        self.shares: NDArray[np.float64] = np.asarray(federation.shares, dtype=np.float64)
        tested = sum(len(client.test) for client in federation.clients)
        self.answers = answers and 0 < tested * federation.outputs <= MOST_KEPT
        self._constant: NDArray[np.float64] | None = None

    def test(self, weights: Weights) -> ClientResults:
        return self._judge(weights, [client.test.index for client in self.federation.clients], answers=self.answers)

    def train(self, weights: Weights) -> ClientResults:
        return self._judge(weights, [client.train.index for client in self.federation.clients], answers=False)

    def alone(self) -> Mapping[str, NDArray[np.float64]]:
        """What each client's own model reaches; nothing where that would take long."""
        return alone(self.federation) if self.answers and cheap(self.learner, self.federation) else {}

    def _judge(self, weights: Weights, indices: list[Tensor], *, answers: bool) -> ClientResults:
        records = np.array([len(index) for index in indices], dtype=np.int64)
        rows, owner = torch.cat(indices), torch.repeat_interleave(torch.arange(len(indices)), torch.from_numpy(records))
        loss = torch.zeros(len(indices), dtype=torch.float64)
        right = torch.zeros(len(indices), dtype=torch.float64)
        measured = bool(self.performance.functions(self.federation.classes))
        outputs = []
        for part in torch.split(torch.arange(len(rows)), BATCH):
            x, y = self.federation.x[rows[part]], self.federation.y[rows[part]]
            losses, correct, output = self.learner.judge(weights, x, y)
            loss.index_add_(0, owner[part], losses.double().cpu())
            right.index_add_(0, owner[part], correct.double().cpu())
            if answers or measured:
                outputs.append(output.cpu())
        with np.errstate(invalid="ignore"):
            means = loss.numpy() / records, right.numpy() / records
        whole = torch.cat(outputs) if outputs else torch.empty(0)
        return ClientResults(
            *means,
            records,
            self.shares,
            self.performance.name,
            self._measured(whole, indices),
            answers=self._answers(whole, rows, owner) if answers else None,
        )

    def _answers(self, outputs: Tensor, rows: Tensor, owner: Tensor) -> Answers:
        """Probabilities of classes, or values in the target's own unit, beside the targets."""
        data = self.federation
        if self._constant is None:
            self._constant = _constant(data)
        targets = data.y[rows]
        if data.classes is not None:
            found = outputs.double().softmax(-1)
        else:
            found = data.in_own_unit(outputs.double()).reshape(len(rows), -1)
            targets = data.in_own_unit(targets.double()).reshape(len(rows), -1)
        return Answers(found.numpy(), targets.numpy(), owner.numpy(), self._constant, data.labels)

    def _measured(self, outputs: Tensor, indices: list[Tensor]) -> dict[str, NDArray[np.float64]]:
        """Every metric of outputs, client by client; NaN for one without records."""
        classes = self.federation.classes
        found = {name: np.full(len(indices), np.nan) for name in self.performance.functions(classes)}
        parts = torch.split(outputs, [len(index) for index in indices]) if found else ()
        for i, (client, index, part) in enumerate(zip(self.federation.clients, indices, parts, strict=False)):
            if len(index):
                values = self.performance.measure(client.name, part, self.federation.y[index], classes)
                for name, value in values.items():
                    found[name][i] = value
        return found


def _constant(data: Federation) -> NDArray[np.float64]:
    """The best answer that looks at no record: the training records' most frequent class, or their targets' means."""
    targets = data.y[torch.cat([client.train.index for client in data.clients])]
    if data.classes is not None:
        return np.array(float(torch.bincount(targets, minlength=data.classes).argmax()))
    return data.in_own_unit(targets.double()).reshape(len(targets), -1).mean(0).numpy()
