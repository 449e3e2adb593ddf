"""Judges the global model on every client's own records: one pass over all of them, results kept apart by client.

It reads raw records. In a simulation that is a measurement; across machines each holder decides whether to answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.records import Weights
from fedfdp.data import Federation
from fedfdp.data.clients import Held
from fedfdp.data.shard import inputs_at
from fedfdp.fairness.metrics import Answers, ClientResults
from fedfdp.fairness.metrics.outputs import OfOutputs
from fedfdp.fairness.performance import Performance
from fedfdp.models.learner import Learner
from fedfdp.models.outputs import at_once
from fedfdp.training.alone import alone, cheap
from fedfdp.training.protocols import NOBODY, Own

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
        tested = int(federation.held("test").counts.sum())
        kinds = {(part.labels, part.outputs) for part in set(map(federation.part, federation.names))}
        few = 0 < tested * federation.outputs <= MOST_KEPT and len(kinds) == 1
        self.answers = answers and few and federation.task.usual
        self._constant: NDArray[np.float64] | None = None

    def test(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        return self._each(weights, own, self.federation.held("test"), self.answers)

    def train(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        return self._each(weights, own, self.federation.held("train"), answers=False)

    def alone(self) -> Mapping[str, NDArray[np.float64]]:
        """What each client's own model reaches; nothing where that would take long."""
        one_model = self.answers and self.learner.first is None
        return alone(self.federation) if one_model and cheap(self.learner, self.federation) else {}

    def _each(self, weights: Weights, own: Own, held: Held, answers: bool) -> ClientResults:
        """All clients in one pass, or each by itself where they have models of their own."""
        names = self.federation.names
        if not own and self.learner.first is None:
            return self._judge(weights, held, answers, self.learner, self.federation, names)
        found = []
        for name, rows in zip(names, held, strict=True):
            learner, mine = self.learner.of(name), Held(torch.from_numpy(rows), np.array([len(rows)]))
            whole = learner.whole(own.get(name, weights))
            found.append(self._judge(whole, mine, answers, learner, self.federation.part(name), (name,)))
        return replace(
            found[0],
            losses=np.array([result.losses[0] for result in found]),
            accuracies=np.array([result.accuracies[0] for result in found]),
            records=np.array([result.records[0] for result in found]),
            shares=self.shares,
            of_outputs={name: np.array([r.of_outputs[name][0] for r in found]) for name in found[0].of_outputs},
            answers=_joined([result.answers for result in found]),
        )

    def _judge(
        self,
        weights: Weights,
        held: Held,
        answers: bool,
        learner: Learner,
        pool: Federation,
        names: Sequence[str],
    ) -> ClientResults:
        """These records of a pool, which these clients hold; those in which no place counts are left out."""
        rows, owner, task = held.rows, held.owner, pool.task
        sums = torch.zeros(5, len(names), dtype=torch.float64)
        functions = self._functions(pool)
        wanted = answers or bool(functions)
        outputs = []
        numbers = pool.outputs * (math.prod(pool.y.shape[1:]) if task.targets == "places" else 1)
        for part in torch.split(torch.arange(len(rows)), at_once(BATCH, numbers)):
            x, y = inputs_at(pool.x, rows[part]), pool.y[rows[part]]
            losses, correct, output = learner.judge(weights, x, y)
            losses, correct, many = losses.double().cpu(), correct.double().cpu(), task.places(y).double()
            for total, each in zip(sums, (many.clamp(max=1), losses, correct, many, losses * many), strict=True):
                total.index_add_(0, owner[part], each.where(many > 0, 0.0))
            if wanted:
                outputs.append(task.answers(output).cpu())
        records, loss, right, places, told = sums.numpy()
        with np.errstate(invalid="ignore"):
            means, of_places = (loss / records, right / records), told / places
        whole = torch.cat(outputs) if outputs else torch.empty(0, pool.outputs)
        measured = self._measured(functions, whole, held, pool, names)
        for name, of_loss in task.of_loss.items():
            measured[name] = np.array([math.nan if math.isnan(v) else of_loss(v) for v in of_places.tolist()])
        kept = self._answers(whole, rows, owner, pool) if answers else None
        counts = records.astype(np.int64)
        return ClientResults(*means, counts, self.shares, self.performance.name, measured, answers=kept)

    def _answers(self, outputs: Tensor, rows: Tensor, owner: Tensor, pool: Federation) -> Answers:
        """Probabilities of classes, or values in the target's own unit, beside the targets."""
        if self._constant is None:
            self._constant = _constant(self.federation)
        targets = pool.y[rows]
        if pool.classes is not None:
            found = outputs.double().softmax(-1)
        else:
            found = pool.in_own_unit(outputs.double()).reshape(len(rows), -1)
            targets = pool.in_own_unit(targets.double()).reshape(len(rows), -1)
        groups = None if pool.groups is None else pool.groups.at(rows.numpy())
        return Answers(found.numpy(), targets.numpy(), owner.numpy(), self._constant, pool.labels, groups)

    def _functions(self, pool: Federation) -> dict[str, OfOutputs]:
        """What is computed of each client's answers: what the task has, and what was asked for."""
        return {**pool.task.of_answers, **self.performance.functions(pool.classes, usual=pool.task.usual)}

    def _measured(
        self,
        functions: Mapping[str, OfOutputs],
        outputs: Tensor,
        held: Held,
        pool: Federation,
        names: Sequence[str],
    ) -> dict[str, NDArray[np.float64]]:
        """Every metric of outputs, client by client; NaN for one without records."""
        found = {name: np.full(len(names), np.nan) for name in functions}
        if not found:
            return found
        parts = torch.split(outputs, held.counts.tolist())
        for i, (client, rows, part) in enumerate(zip(names, held, parts, strict=True)):
            if len(rows):
                values = self.performance.measure(functions, client, part, pool.y[torch.from_numpy(rows)])
                for name, value in values.items():
                    found[name][i] = value
        return found


def _constant(data: Federation) -> NDArray[np.float64]:
    """The best answer that looks at no record: the training records' most frequent class, or their targets' means."""
    targets = data.targets("train")
    if data.classes is not None:
        return np.array(float(torch.bincount(targets, minlength=data.classes).argmax()))
    return data.in_own_unit(targets.double()).reshape(len(targets), -1).mean(0).numpy()


def _joined(parts: list[Answers | None]) -> Answers | None:
    """The answers of clients that were judged one by one."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    owner = np.repeat(np.arange(len(known)), [len(part) for part in known])
    outputs, targets = (np.concatenate([getattr(p, name) for p in known]) for name in ("outputs", "targets"))
    groups = known[0].groups
    if groups is not None:
        groups = replace(groups, of=np.concatenate([part.groups.of for part in known if part.groups is not None]))
    return Answers(outputs, targets, owner, known[0].constant, known[0].names, groups)
