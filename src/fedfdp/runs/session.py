"""A run while it goes on: it drives the trainer, keeps folder and statement up to date, and sums up at the end.

Ledgers are synced to disk before anything that was computed from their releases is written.
"""

import json
import logging
import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from fedfdp.algorithms import algorithm_name
from fedfdp.core import weights
from fedfdp.core.errors import DivergedError, FedFDPError, RunError
from fedfdp.core.trees import is_plain
from fedfdp.fairness.metrics import by_class, by_group
from fedfdp.models.adapters import told_of_moves
from fedfdp.models.learner import Learner
from fedfdp.models.pretrained import remark_of, save_whole
from fedfdp.models.tasks import task_for
from fedfdp.privacy.accounting.events import history_of, repeat
from fedfdp.runs.folder import CLIENTS, LEDGER, PRIVACY_JSON, PRIVACY_PAGE, Json, RunFolder
from fedfdp.runs.live import Live
from fedfdp.runs.statement import Statement, statement
from fedfdp.training.protocols import Accounts
from fedfdp.training.robust import summed_up
from fedfdp.training.rounds import Step, Trainer

PRETRAINED = "pretrained"  # the folder, within the run's, for a model that has save_pretrained
CHECKED = 2  # the round after which adapters must have moved

log = logging.getLogger(__name__)

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
    spent: Callable[[], float | None] = field(repr=False)  # computes `epsilon`
    budget: float | None  # the ε that was allowed; None without privacy
    history: list[dict[str, Any]] = field(repr=False)  # the entries of all evaluations so far

    @cached_property
    def epsilon(self) -> float | None:
        """How much the client that spent most has used up so far, for display; None without privacy.

        Computed when it is first read, which may take longer than a round of a small model.
        """
        return self.spent()


class Session:
    """One run of a trainer, from its checkpoint or its start to its end."""

    def __init__(
        self,
        trainer: Trainer,
        learner: Learner,
        accounts: Accounts | None,
        folder: RunFolder | None,
        identity: Mapping[str, str],
        about: Mapping[str, object],
    ) -> None:
        self.trainer, self.plan, self.members, self.engine = trainer, trainer.plan, trainer.members, trainer.engine
        self.learner, self.accounts, self.folder, self.identity = learner, accounts, folder, identity
        self.about = {**({"remark": said} if (said := remark_of(learner.model)) else {}), **about}
        self.history = list[Json]()

    def go(self, on_update: Callable[[Update], None] | None) -> Result:
        self._restore()
        done, rounds = self.trainer.progress.state.round, self.plan.rounds
        with Live(self.folder, self.members, self.engine, self.accounts, done=done, rounds=rounds) as live:
            return self._go(on_update, live)

    def _go(self, on_update: Callable[[Update], None] | None, live: Live) -> Result:
        saved = time.monotonic()
        try:
            for step in self.trainer.run():
                if self.trainer.progress.state.round == CHECKED:
                    self._check_moves()
                if step.evaluation is not None:
                    self._record(step)
                due = self.engine.saves_every_round or time.monotonic() - saved > CHECKPOINT_SECONDS
                if step.evaluation is not None or due:
                    self._save()
                    saved = time.monotonic()
                if on_update is not None:
                    budget = self.plan.privacy.epsilon if self.plan.privacy else None
                    on_update(Update(step, partial(self._epsilon, final=False), budget, self.history))
                live.ended(step)
        except KeyboardInterrupt:
            self._save()
            self._write_statement()
            raise
        state = self.trainer.progress.state
        if self.trainer.diverged:
            self._give_up()
        if state.round < self.plan.rounds and not self.plan.algorithm.done(state):
            log.warning("stopped after %s of %s rounds: no client can pay for another", state.round, self.plan.rounds)
        return self._finish()

    def _check_moves(self) -> None:
        """Says whether adapters are trained at all: a run that moves another copy of them looks like any other."""
        said = told_of_moves(self.trainer.start, self.trainer.progress.state.weights)
        if said:
            log.log(logging.WARNING if "not moved" in said else logging.INFO, "after round %s: %s", CHECKED, said)

    def _give_up(self) -> NoReturn:
        """Ends a run that diverged: what it paid for is stated and kept, and it does not pass for a success."""
        result, method = self._finish(), self.plan.algorithm
        kept = f"; kept in {result.folder}" if result.folder else ""
        rates = f"algorithm.lr = {method.lr:g}: try a tenth of it, or leave it out to have it chosen"
        clip = f" (and privacy.clip = {self.plan.privacy.clip:g} with it)" if self.plan.privacy else ""
        raise DivergedError(f"the run diverged: {self.trainer.diverged}{kept}; {rates}{clip}", result)

    def _restore(self) -> None:
        if self.folder is None:
            return
        progress = self.folder.load_checkpoint(self.trainer.progress_type())
        if progress is not None:
            if self.accounts is not None and self.accounts.charged() < progress.charged:
                raise RunError(
                    f"{self.folder.path / LEDGER} shows less than what was spent when the checkpoint was written "
                    f"({self.accounts.charged()} of {progress.charged} charges): it is missing or an older copy; put "
                    f"the right one back, or start the run anew with another --out"
                )
            self.trainer.progress = progress
        self.folder.forget_metrics_after(self.trainer.progress.state.round)
        self.folder.write(CLIENTS, json.dumps(self.members.holdings()).encode())
        self.history = self.folder.metrics()
        # Of the whole plan: whatever ends the run, and however, it is not less. Nodes may have spent more since then.
        if not (self.folder.path / PRIVACY_JSON).exists() or not self.engine.charges_here:
            self._write_statement()

    def _record(self, step: Step) -> None:
        """Notes an evaluation, once what was spent for it is durable."""
        assert step.evaluation is not None
        if self.accounts is not None:
            self.accounts.sync()
        clients = step.evaluation.clients
        entry: Json = {
            "round": step.round,
            **{name: _finite(value) for name, value in step.evaluation.measures.items()},
            "epsilon": self._epsilon(final=False),
            "clients": {name: [_finite(v) for v in found.tolist()] for name, found in clients.by_client().items()},
        }
        parts = {"classes": by_class(clients.answers), "groups": by_group(clients.answers)}
        entry |= {name: found for name, found in parts.items() if found is not None}
        self.history.append(entry)
        if self.folder is not None:
            self.folder.append_metrics(entry)

    def _save(self) -> None:
        if self.folder is not None:
            if self.accounts is not None:
                self.accounts.sync()
            charged = self.accounts.charged() if self.accounts is not None else 0
            self.folder.save_checkpoint(replace(self.trainer.progress, charged=charged))

    def _epsilon(self, *, final: bool) -> float | None:
        if self.accounts is None:
            return None
        self._check_charges(self.accounts)
        if not final:
            return self.accounts.epsilon_so_far()
        made = self._statement() if self._cut_short else None
        return self.accounts.epsilon() if made is None else made.epsilon

    @property
    def _cut_short(self) -> bool:
        """Whether the run ended before its plan did, perhaps for what it showed: then the whole plan is claimed."""
        state, unable = self.trainer.progress.state, self.engine.unable
        over = state.round >= self.plan.rounds or self.plan.algorithm.done(state)
        return not over and len(unable) < len(self.members.names)

    def _check_charges(self, accounts: Accounts) -> None:
        """Raises if the ledgers show fewer events than the uploads have: the stated ε would be too low."""
        if self.engine.charges_here and accounts.charged() < self.trainer.events:
            if self.folder is not None:  # what was written before the first round is not true
                self.folder.remove(PRIVACY_JSON, PRIVACY_PAGE)
            name, used, shown = type(self.engine).__name__, self.trainer.events, accounts.charged()
            raise FedFDPError(
                f"engine {name} has uploads of {used} events, and the ledgers show {shown}: it must charge a client "
                f"before it draws a batch; correct its `round`"
            )

    def _finish(self) -> Result:
        trainer, done = self.trainer, self.trainer.progress.state.round
        if not self.history or self.history[-1]["round"] != done:
            self._record(Step(done, self.plan.rounds, 0, trainer.evaluate(last=True)))
        self.engine.settle()
        if self.accounts is not None:
            self.accounts.sync()
        summary = self._summary()
        self._write_statement()
        if self.folder is not None:
            for name, own in trainer.own.items():
                self.folder.keep_own(name, self.learner.of(name).state_with(own))
        model = self.learner.released(trainer.released)
        if self.folder is not None:
            save_whole(model, self.folder.path / PRETRAINED)
            self.folder.finish(summary, model.state_dict())
        return Result(model, summary, self.history, self.folder.path if self.folder else None)

    def _write_statement(self) -> None:
        if self.folder is not None and (made := self._statement()) is not None:
            self.folder.write(PRIVACY_JSON, made.to_json().encode())
            self.folder.write(PRIVACY_PAGE, made.to_markdown().encode())

    def _statement(self) -> Statement | None:
        """What may be claimed now; None without privacy."""
        if self.accounts is None or self.plan.privacy is None:
            return None
        self._check_charges(self.accounts)
        facts, algorithm, done = self.engine.facts(), self.plan.algorithm, self.trainer.progress.state.round
        ahead = None
        if self._cut_short:
            round = algorithm.events(None, self.plan.privacy)
            ahead = self.engine.ahead(history_of(repeat(round, self.plan.rounds - done)))
        data = self.folder.config().get("data", {}) if self.folder is not None else {}
        return statement(
            algorithm,
            algorithm_name(algorithm),
            self.plan.privacy,
            self.accounts,
            dict(zip(self.members.names, self.members.sizes, strict=True)),
            rounds=done,
            planned=self.plan.rounds if self._cut_short else None,
            ahead=ahead,
            repeatable=self.plan.repeatable,
            before=self.members.before,
            unit=self.members.unit,
            facts=facts,
            unchecked=tuple(data.get("unchecked", ())),
        )

    def _summary(self) -> Json:
        last = {name: value for name, value in self.history[-1].items() if name not in ("round", "epsilon", "clients")}
        progress, privacy, members = self.trainer.progress, self.plan.privacy, self.members
        return {
            **last,
            "epsilon": self._epsilon(final=True),
            "delta": privacy.delta if privacy else None,
            "rounds": progress.state.round,
            **({"diverged": self.trainer.diverged} if self.trainer.diverged else {}),
            **({"robust": summed_up(self.trainer.conduct)} if self.plan.server.robust else {}),
            "seconds": round(progress.seconds, 3),
            "algorithm": algorithm_name(self.plan.algorithm),
            "clients": len(members.names),
            "records": progress.state.population.records,
            "weights": weights.size(self.trainer.released),
            "sigma": privacy.sigma if privacy else None,
            "epsilon_budget": privacy.epsilon if privacy else None,
            "accountant": privacy.accountant if privacy else None,
            "unit": members.unit,
            "data": f"{members.name} ({remark})" if (remark := self.about.get("remark")) else members.name,
            "task": {  # enough to build the model again without the records
                "input_shape": list(members.input_shape),
                "classes": members.classes,
                "outputs": members.outputs,
                "tokens": members.tokens,
                **({} if is_plain(members.form) else {"inputs": [list(leaf) for leaf in members.form]}),
                **({} if members.task is task_for(members.classes) else members.task.kept),
                **({} if self.learner.output is None else {"output": self.learner.output}),
            },
            "metric": self.trainer.evaluator.performance.name,
            "evaluation_share": round(self.trainer.evaluating / max(progress.seconds, 1e-9), 4),
            "threads": torch.get_num_threads(),
            "identity": dict(self.identity),
            "versions": {"fedfdp": version("fedfdp"), "torch": torch.__version__, "python": platform.python_version()},
            **self.about,
            **self.engine.facts().summary,
        }


def _finite(value: float) -> float | None:
    """NaN and infinities have no place in JSON: they become null."""
    return value if math.isfinite(value) else None
