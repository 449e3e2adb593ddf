"""`train`: a model, a federation and a method in; a trained model and its measures out. The one way to run things."""

import copy
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from fedfdp import models, weights
from fedfdp.algorithms import Algorithm, FedFDP
from fedfdp.algorithms.base import Population
from fedfdp.budget import resolve_privacy
from fedfdp.config import algorithm_name
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.errors import RunError, SettingError, nearest
from fedfdp.evaluation import Evaluator
from fedfdp.learner import Learner, LossFunction, cross_entropy, squared_error
from fedfdp.participation import Participation
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.randomness import Seeded
from fedfdp.privacy.secure import Secure
from fedfdp.privacy.statement import statement
from fedfdp.records import Weights, digest
from fedfdp.runs.folder import LEDGER, PRIVACY_JSON, PRIVACY_PAGE, RunFolder
from fedfdp.server import Server
from fedfdp.settings import plain
from fedfdp.trainer import Late, Progress, Step, Trainer

CHECKPOINT_SECONDS = 15.0
MOST_THREADS = 16


@dataclass(frozen=True)
class Result:
    """What a run gives: the trained model, its measures, and those along the way."""

    model: nn.Module
    summary: dict[str, Any]
    history: list[dict[str, Any]]
    folder: Path | None = None


@dataclass(frozen=True)
class Update:
    """What a run tells while it goes on: the finished round, and the ε spent so far by the client that spent most."""

    step: Step
    epsilon: float | None
    budget: float | None
    history: list[dict[str, Any]] = field(repr=False)


def train(
    model: nn.Module,
    federation: Federation,
    *,
    algorithm: Algorithm | None = None,
    privacy: DPSGD | None = None,
    rounds: int | None = None,
    server: Server | None = None,
    participation: Participation | None = None,
    loss: LossFunction | None = None,
    seed: int = 0,
    randomness: Literal["seeded", "secure"] = "seeded",
    eval_every: int | None = None,
    fused: bool = True,
    device: str = "cpu",
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    config: dict[str, Any] | None = None,
    on_update: Callable[[Update], None] | None = None,
) -> Result:
    """Trains `model` across the clients of `federation`; the model that is passed in stays as it is.

    With `privacy`, one of its ε and σ or `rounds` may be left out. With `out`, the run is a folder that `resume=True`
    continues to the same bits; `config` is what that folder keeps as its settings. `randomness="secure"` draws batches
    and noise from the operating system: nothing is repeated then, and a round that is resumed is paid for again.

    >>> import torch, fedfdp
    >>> x, y = torch.randn(400, 5, generator=torch.Generator().manual_seed(0)), torch.arange(400) % 2
    >>> clients = fedfdp.Federation.from_clients({"north": (x[:250], y[:250]), "south": (x[250:], y[250:])})
    >>> private = fedfdp.DPSGD(epsilon=2.0, sigma=2.0, q=0.1, clip=1.0)
    >>> method = fedfdp.FedFDP(lr=0.5)
    >>> result = fedfdp.train(torch.nn.Linear(5, 2), clients, algorithm=method, privacy=private, rounds=5)
    >>> result.summary["rounds"], result.summary["epsilon"] <= 2.0
    (5, True)
    """
    algorithm, server, participation = algorithm or FedFDP(), server or Server(), participation or Participation()
    algorithm.check_privacy(privacy)
    privacy, rounds = resolve_privacy(privacy, algorithm, rounds, share=participation.fraction)
    eval_every = eval_every or max(1, math.ceil(rounds / 15))
    classes = federation.classes
    outputs = classes or math.prod(federation.y.shape[1:]) or 1
    model = copy.deepcopy(model)
    models.check_output(model, input_shape=federation.input_shape, outputs=outputs, classification=classes is not None)
    learner = Learner(model, loss or (squared_error if classes is None else cross_entropy), device=_device(device))
    first = learner.initial()
    settings = {
        "algorithm": {"name": algorithm_name(algorithm), **plain(algorithm)},
        "privacy": plain(privacy) if privacy else {},
        "server": plain(server),
        "participation": plain(participation),
        "rounds": rounds,
        "seed": seed,
        "fused": fused,
        "randomness": randomness,
    }
    identity = {
        "settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        "data": federation.fingerprint(),
        "weights": digest(first),
        "model": digest(_described(model, learner.loss_fn), dict(model.named_buffers()), _frozen(model)),
    }
    _check_budgets(privacy, federation)
    before = torch.get_num_threads()
    with ExitStack() as stack:
        torch.set_num_threads(threads or default_threads())
        stack.callback(torch.set_num_threads, before)
        folder = None
        if out is not None:
            folder = _folder(Path(out), resume, config or settings, identity)
            stack.enter_context(folder.locked())
        book = None
        if privacy is not None:
            book = stack.enter_context(
                LedgerBook.open(
                    folder.path / LEDGER if folder else None,
                    data=identity["data"],
                    config=identity["settings"],
                    delta=privacy.delta,
                    accountant="filter" if algorithm.adaptive else privacy.accountant,
                    budgets={client.name: privacy.budget(client.name) for client in federation.clients},
                    sync=False,
                )
            )
        source = Secure() if randomness == "secure" else Seeded(seed)
        engine = LocalEngine(federation, learner, algorithm, privacy=privacy, randomness=source, book=book, fused=fused)
        sizes = [len(client.train) for client in federation.clients]
        population = Population(len(federation), sum(sizes), min(sizes), classes)
        trainer = Trainer(
            algorithm,
            engine,
            Evaluator(learner, federation),
            server=server,
            participation=participation,
            seed=seed,
            progress=Progress(algorithm.init(first, population, privacy)),
            rounds=rounds,
            eval_every=eval_every,
        )
        return _Run(trainer, learner, federation, engine, book, folder, identity).go(on_update)


class _Run:
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
        self.history = self.folder.metrics()

    def _record(self, step: Step) -> None:
        """What was spent is durable before anything that came of it is."""
        assert step.evaluation is not None
        if self.book is not None:
            self.book.sync()
        clients = step.evaluation.clients
        entry = {
            "round": step.round,
            **finite(step.evaluation.measures),
            "epsilon": self._epsilon(final=False),
            "clients": {
                "loss": [finite_or_none(v) for v in clients.losses.tolist()],
                "accuracy": [finite_or_none(v) for v in clients.accuracies.tolist()],
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
        return self.book.epsilon() if final else self.book.epsilon_upper_bound()

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
            {client.name: len(client.train) for client in self.federation.clients},
            rounds=self.trainer.progress.state.round,
            repeatable=self.repeatable,
        )
        self.folder.write(PRIVACY_JSON, made.to_json().encode())
        self.folder.write(PRIVACY_PAGE, made.to_markdown().encode())

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
            "evaluation_share": round(self.trainer.evaluating / max(progress.seconds, 1e-9), 4),
            "threads": torch.get_num_threads(),
            "identity": self.identity,
            "versions": {"fedfdp": version("fedfdp"), "torch": torch.__version__, "python": platform.python_version()},
        }


def default_threads() -> int:
    """One a core this process may use, up to where small batches stop gaining; OMP_NUM_THREADS has the last word."""
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


def finite(values: dict[str, float]) -> dict[str, float | None]:
    """NaN and infinities have no place in JSON: they become null."""
    return {name: finite_or_none(value) for name, value in values.items()}


def finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _folder(path: Path, resume: bool, config: dict[str, Any], identity: dict[str, str]) -> RunFolder:
    if not resume:
        return RunFolder.create(path, config, identity)
    folder = RunFolder.find(path)
    folder.check_identity(identity)
    if folder.finished:
        raise RunError(f"{path} is finished; there is nothing to resume: see fedfdp show {path}")
    return folder


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError):
        raise SettingError("device", name, "there is no such device here", "take cpu or auto") from None
    return name


def _check_budgets(privacy: DPSGD | None, federation: Federation) -> None:
    names = [client.name for client in federation.clients]
    for name, budget in (privacy.budgets if privacy else {}).items():
        if name not in names:
            known = nearest(name, names) if len(names) <= 50 else f"there are {len(names)} others"
            raise SettingError(f"privacy.budgets.{name}", budget, f"no such client; {known}")


def _described(model: nn.Module, loss: LossFunction) -> str:
    """What is trained, in words: another architecture or loss is another run, and must not meet the same noise."""
    return f"{model!r}\n{getattr(loss, '__module__', '')}:{getattr(loss, '__qualname__', repr(type(loss)))}"


def _frozen(model: nn.Module) -> Weights:
    return {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
