"""Where every run is put together: threads, folder, engine, trainer, session. It knows no engine by name."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from fedfdp.algorithms.base import Population
from fedfdp.core.errors import RunError
from fedfdp.models.learner import Learner
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.session import Result, Session, Update
from fedfdp.training.protocols import Accounts, Engine, Evaluator, Members
from fedfdp.training.rounds import Plan, Trainer


@dataclass(frozen=True)
class Started:
    """The engine, evaluator and accounts of a run; no accounts without privacy."""

    engine: Engine
    evaluator: Evaluator
    accounts: Accounts | None


# Called with the run's folder, where ledgers are kept; None if nothing is written.
Start = Callable[[Path | None], AbstractContextManager[Started]]


def carry_out(
    plan: Plan,
    members: Members,
    learner: Learner,
    start: Start,
    *,
    identity: Mapping[str, str],
    config: Mapping[str, object],
    out: Path | None,
    resume: bool,
    threads: int | None,
    on_update: Callable[[Update], None] | None,
    about: Mapping[str, object] | None = None,
) -> Result:
    """Runs a plan to its end, in the folder `out` if there is one.

    Args:
        plan: what is computed.
        members: who takes part.
        learner: the model and its loss.
        start: opens accounts and engine once the folder is there.
        identity: digests by which the run is known when it is resumed.
        config: what a new folder keeps as the run's settings.
        out: the run's folder; None: nothing is written.
        resume: whether it goes on with the run in `out`.
        threads: of torch, while it runs; None: as they are.
        on_update: called after every round.
        about: what the summary says beside measures and settings.
    """
    declared = [size for size in members.sizes if size]
    population = Population(len(members.names), sum(declared), min(declared), members.classes)
    state = plan.algorithm.init(learner.initial(), population, plan.privacy)
    # Every check of the settings has passed. Only from here on is a folder made.
    with ExitStack() as stack:
        if threads is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(threads)
        folder = None
        if out is not None:
            folder = _open(out, resume, config, identity)
            stack.enter_context(folder.locked())
            folder.forget_stop()  # what was asked of an earlier start is done; from here on the run looks alive
        started = stack.enter_context(start(folder.path if folder else None))
        trainer = Trainer(plan, members, started.engine, started.evaluator, state)
        return Session(trainer, learner, started.accounts, folder, identity, about or {}).go(on_update)


def check_folder(path: Path, resume: bool) -> None:
    """Raises unless a run can begin here, or go on. It needs nothing but the folder: look before anybody waits."""
    if not resume:
        RunFolder.check_free(path)
    elif RunFolder.find(path).finished:
        raise RunError(f"{path} is finished; there is nothing to resume: see fedfdp show {path}")


def _open(path: Path, resume: bool, config: Mapping[str, object], identity: Mapping[str, str]) -> RunFolder:
    if not resume:
        return RunFolder.create(path, config, identity)
    folder = RunFolder.find(path)
    folder.check_identity(identity)  # that it is another run's says more than that it is finished
    check_folder(path, resume)
    return folder
