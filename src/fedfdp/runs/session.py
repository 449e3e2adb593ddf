"""One run while it goes on: drives the trainer, keeps the folder and the statement up to date, and sums up at the end.

What was spent is durable before anything that came of it is written.
"""

import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedfdp.algorithms import algorithm_name
from fedfdp.core import weights
from fedfdp.core.errors import RunError
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.models.learner import Learner
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.runs.folder import CLIENTS, LEDGER, PRIVACY_JSON, PRIVACY_PAGE, RunFolder
from fedfdp.runs.statement import statement
from fedfdp.training.rounds import Late, Progress, Step, Trainer

CHECKPOINT_SECONDS = 15.0


@dataclass(frozen=True)
class Result:
    """What a run gives: the trained model, its measures, and those along the way."""

    model: nn.Module  # in evaluation mode, with the released weights
    summary: dict[str, Any]  # final measures, ε spent, settings: what summary.json holds
    history: list[dict[str, Any]]  # one entry for each evaluation: what metrics.jsonl holds
    folder: Path | None = None  # where the run is kept; None without `out`


@dataclass(frozen=True)
class Update:
    """What a run tells while it goes on: the finished round, and how much ε is used up so far."""

    step: Step  # the round that has just ended
    epsilon: float | None  # how much the client that spent most has used up so far, for display; None without privacy
    budget: float | None  # the ε that was allowed; None without privacy
    history: list[dict[str, Any]] = field(repr=False)  # the entries of all evaluations so far


class Session:
    """One call of `train`: drives the trainer, keeps the folder up to date, and sums up."""

    def __init__(
        self,
        trainer: Trainer,
        learner: Learner,
        federation: Federation,
        engine: LocalEngine,
        book: LedgerBook | None,
        folder: RunFolder | None,
        identity: dict[str, str],
    ) -> None:
        self.trainer, self.learner, self.federation = trainer, learner, federation
        self.privacy, self.repeatable = engine.privacy, engine.randomness.repeatable
        self.book, self.folder, self.identity = book, folder, identity
        self.history: list[dict[str, Any]] = []

    def go(self, on_update: Callable[[Update], None] | None) -> Result:
        self._restore()
        saved = time.monotonic()
        try:
            for step in self.trainer.run():
                if step.evaluation is not None:
                    self._record(step)
                if step.evaluation is not None or time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self._save()
                    saved = time.monotonic()
                if on_update is not None:
                    budget = self.privacy.epsilon if self.privacy else None
                    on_update(Update(step, self._epsilon(final=False), budget, self.history))
        except KeyboardInterrupt:
            self._save()
            self._write_statement()
            raise
        return self._finish()

    def _restore(self) -> None:
        if self.folder is None:
            return
        progress = self.folder.load_checkpoint(self.trainer.progress_type())
        if progress is not None:
            if self.book is not None and self.book.charged() < progress.charged:
                raise RunError(
                    f"{self.folder.path / LEDGER} shows less than what was spent when the checkpoint was written "
                    f"({self.book.charged()} of {progress.charged} charges): it is missing or an older copy; put the "
                    f"right one back, or start the run anew with another --out"
                )
            late = tuple(Late(reply.made, reply.due, reply.upload) for reply in progress.late)
            self.trainer.progress = Progress(
                progress.state, progress.server, progress.memories, late, progress.seconds, progress.charged
            )
        self.folder.forget_metrics_after(self.trainer.progress.state.round)
        self.folder.write(CLIENTS, json.dumps(holdings(self.federation)).encode())
        self.history = self.folder.metrics()

    def _record(self, step: Step) -> None:
        """What was spent is durable before anything that came of it is."""
        assert step.evaluation is not None
        if self.book is not None:
            self.book.sync()
        clients = step.evaluation.clients
        own = clients.performance
        entry = {
            "round": step.round,
            **finite(step.evaluation.measures),
            "epsilon": self._epsilon(final=False),
            "clients": {
                "loss": [finite_or_none(v) for v in clients.losses.tolist()],
                "accuracy": [finite_or_none(v) for v in clients.accuracies.tolist()],
                **({} if own is None else {"performance": [finite_or_none(v) for v in own.tolist()]}),
            },
        }
        self.history.append(entry)
        if self.folder is not None:
            self.folder.append_metrics(entry)

    def _save(self) -> None:
        if self.folder is not None:
            if self.book is not None:
                self.book.sync()
            charged = self.book.charged() if self.book is not None else 0
            self.folder.save_checkpoint(replace(self.trainer.progress, charged=charged))

    def _epsilon(self, *, final: bool) -> float | None:
        if self.book is None:
            return None
        return self.book.epsilon() if final else self.book.epsilon_so_far()

    def _finish(self) -> Result:
        trainer = self.trainer
        if not self.history or self.history[-1]["round"] != trainer.progress.state.round:
            done = trainer.progress.state.round
            self._record(Step(done, trainer.rounds, 0, trainer.evaluate(last=True)))
        if self.book is not None:
            self.book.sync()
        summary = self._summary()
        self._write_statement()
        self.learner.load(trainer.released)
        model = self.learner.model.eval()
        if self.folder is not None:
            self.folder.finish(summary, model.state_dict())
        return Result(model, summary, self.history, self.folder.path if self.folder else None)

    def _write_statement(self) -> None:
        if self.folder is None or self.book is None or self.privacy is None:
            return
        made = statement(
            self.trainer.algorithm,
            algorithm_name(self.trainer.algorithm),
            self.privacy,
            self.book,
            {client.name: client.size for client in self.federation.clients},
            rounds=self.trainer.progress.state.round,
            repeatable=self.repeatable,
            before=isinstance(self.federation, Federation) and bool(self.federation.before),
            unit=self.federation.unit,
            **self._about_clients(),
        )
        self.folder.write(PRIVACY_JSON, made.to_json().encode())
        self.folder.write(PRIVACY_PAGE, made.to_markdown().encode())

    def _about_clients(self) -> dict[str, Any]:
        """What only an engine with clients elsewhere has to say in the statement."""
        return {}

    def _summary(self) -> dict[str, Any]:
        last = {name: value for name, value in self.history[-1].items() if name not in ("round", "epsilon", "clients")}
        progress = self.trainer.progress
        return {
            **last,
            "epsilon": self._epsilon(final=True),
            "delta": self.privacy.delta if self.privacy else None,
            "rounds": progress.state.round,
            "seconds": round(progress.seconds, 3),
            "algorithm": algorithm_name(self.trainer.algorithm),
            "clients": len(self.federation),
            "records": progress.state.population.records,
            "weights": weights.size(self.trainer.released),
            "sigma": self.privacy.sigma if self.privacy else None,
            "epsilon_budget": self.privacy.epsilon if self.privacy else None,
            "accountant": self.privacy.accountant if self.privacy else None,
            "data": self.federation.name,
            "task": task_of(self.federation),
            "metric": self.trainer.evaluator.performance.name,
            "evaluation_share": round(self.trainer.evaluating / max(progress.seconds, 1e-9), 4),
            "threads": torch.get_num_threads(),
            "identity": self.identity,
            "versions": {"fedfdp": version("fedfdp"), "torch": torch.__version__, "python": platform.python_version()},
        }


def holdings(federation: Federation) -> dict[str, Any]:
    """Who takes part with how many records; of which classes only where all records are here, as in a simulation."""
    here = isinstance(federation, Federation)
    return {
        "names": [client.name for client in federation.clients],
        "train": [len(client.train) if here else client.size for client in federation.clients],
        "test": [len(client.test) for client in federation.clients] if here else None,
        "classes": federation.class_counts().tolist() if here and federation.classes is not None else None,
    }


def task_of(records: Any) -> dict[str, Any]:
    """What a model for a federation's records takes and gives: enough to build it again without them."""
    if isinstance(records, Federation):
        tokens = not records.x.is_floating_point()
    else:
        records = records.like  # what the nodes said of themselves
        tokens = records.tokens
    known = {"input_shape": list(records.input_shape), "classes": records.classes, "outputs": records.outputs}
    return known | {"tokens": tokens}


def finite(values: dict[str, float]) -> dict[str, float | None]:
    """NaN and infinities have no place in JSON: they become null."""
    return {name: finite_or_none(value) for name, value in values.items()}


def finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def open_folder(path: Path, resume: bool, config: dict[str, Any], identity: dict[str, str]) -> RunFolder:
    if not resume:
        return RunFolder.create(path, config, identity)
    folder = RunFolder.find(path)
    folder.check_identity(identity)
    if folder.finished:
        raise RunError(f"{path} is finished; there is nothing to resume: see fedfdp show {path}")
    return folder
