"""Successive halving: every candidate trains a little, the better part goes on from where it stopped, and so on.

A candidate is one run with one folder from first to last: a stopped run keeps its checkpoint, and the same call goes
on from whatever is on disk. Holds no results of its own.
"""

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedfdp.core.errors import FedFDPError, RunError
from fedfdp.native.threads import cores
from fedfdp.runs.build import pinned
from fedfdp.runs.config import Config
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.session import Update
from fedfdp.runs.store import Store
from fedfdp.tuning.grid import Candidate
from fedfdp.tuning.pareto import Outcome, ranked

ETA = 3
RUNGS = 3
FIRST_RUNG = 20  # rounds, the least that candidates are compared after: earlier, all that shows is how they start
SHORT, SEEDS = 200, 3  # runs of at most so many rounds are compared by the mean over so many seeds: noise is large


@dataclass(frozen=True)
class Tuned:
    """What came of each candidate, by its place in the list: how far it went, what it reached, what went wrong."""

    outcomes: Mapping[int, Outcome]
    finished: tuple[int, ...]
    failed: Mapping[int, str]


@dataclass(frozen=True)
class RungReport:
    """What `on_report` is told: one candidate has reached a rung, or failed there, and then `outcome` is None."""

    rung: int
    of: int
    candidate: int
    done: int
    asked: int
    outcome: Outcome | None


class _RungReached(KeyboardInterrupt):
    """Ends a run at a rung. To the run it is an interrupt: it saves itself, to be continued."""


def rungs(rounds: int, *, eta: int = ETA, count: int = RUNGS) -> list[int]:
    """The rounds after which candidates are compared: R/η², R/η and R, none of them before `FIRST_RUNG`."""
    levels = max(0, min(count - 1, int(math.log(rounds / FIRST_RUNG, eta) + 1e-9)))
    unit = rounds // eta**levels
    return [unit * eta**level for level in range(levels)] + [rounds]


def tune(
    candidates: Sequence[Candidate],
    root: Path,
    *,
    eta: int = ETA,
    jobs: int | None = None,
    on_report: Callable[[RungReport], None] = lambda report: None,
) -> Tuned:
    """Runs candidates below `root` until few enough are left to be run to the end. Called again, it goes on."""
    ladders = [rungs(_rounds(candidate.config), eta=eta) for candidate in candidates]
    levels = max(map(len, ladders))
    tried = zip(pinned([candidate.config for candidate in candidates]), ladders, strict=True)
    runs = [_seeded(replace(config, threads=1, eval_every=ladder[0])) for config, ladder in tried]
    alive = list(range(len(candidates)))
    outcomes: dict[int, Outcome] = {}
    failed: dict[int, str] = {}
    with _pool(min(jobs or cores(), len(candidates))) as pool:
        for level in range(levels):
            # A shorter ladder joins late: all end at the last level.
            asked = {i: ladders[i][max(0, level - levels + len(ladders[i]))] for i in alive}
            reached: dict[int, Outcome] = {}
            for done, (i, came) in enumerate(_answers(pool, runs, root, asked), start=1):
                if isinstance(came, Outcome):
                    reached[i] = outcomes[i] = came
                else:
                    failed[i] = came
                on_report(RungReport(level + 1, levels, i, done, len(asked), reached.get(i)))
            alive = ranked({i: reached[i] for i in sorted(reached)})
            if level + 1 < levels:
                alive = alive[: math.ceil(len(alive) / eta)]
    if not alive:
        raise RunError(f"no setting could be run to its end; the first: {next(iter(failed.values()))}")
    return Tuned(outcomes, tuple(alive), failed)


def advance(config: Config, root: Path, to: int) -> Outcome:
    """What this run has reached after `to` rounds; trains it up to there first if necessary."""
    store = Store(root)
    folder = store.run(config)
    if (known := _reached(folder, to)) is not None:
        return known

    def stop(update: Update) -> None:
        if to <= update.step.round < update.step.rounds:
            raise _RungReached

    with suppress(_RungReached):
        store.complete(config, stop)
    found = _reached(folder, to)
    if found is None:
        raise RunError(
            f"{folder.path} was not evaluated after round {to}; give the --eta it was begun with, or another --out"
        )
    return found


def _answers(
    pool: ProcessPoolExecutor | None, runs: Sequence[Sequence[Config]], root: Path, asked: Mapping[int, int]
) -> Iterator[tuple[int, Outcome | str]]:
    """What each candidate reached, or what went wrong, as it comes in; in this process where there is no pool."""
    if pool is None:
        for i, to in asked.items():
            yield i, _together([_attempt(run, root, to) for run in runs[i]])
        return
    waiting = {pool.submit(_attempt, run, root, to): i for i, to in asked.items() for run in runs[i]}
    came: dict[int, list[Outcome | str]] = {i: [] for i in asked}
    for future in as_completed(waiting):
        i = waiting[future]
        came[i].append(future.result())
        if len(came[i]) == len(runs[i]):
            yield i, _together(came[i])


def _seeded(config: Config) -> list[Config]:
    """The runs by which a setting is judged: of a short one several, with other noise on the same data."""
    dealt = replace(config.data, seed=config.seed if config.data.seed is None else config.data.seed)
    seeds = SEEDS if _rounds(config) <= SHORT else 1
    return [config, *(replace(config, seed=config.seed + i, data=dealt) for i in range(1, seeds))]


def _together(came: Sequence[Outcome | str]) -> Outcome | str:
    """The mean over seeds; what went wrong if one failed."""
    wrong = [one for one in came if isinstance(one, str)]
    return wrong[0] if wrong else Outcome.mean([one for one in came if isinstance(one, Outcome)])


def _attempt(config: Config, root: Path, to: int) -> Outcome | str:
    try:
        return advance(config, root, to)
    except FedFDPError as error:
        return str(error)


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes to run in, or None for this one."""
    if jobs == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended: a run on disk takes no harm from it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _reached(folder: RunFolder, to: int) -> Outcome | None:
    """From the run's metrics; a run whose budget ended it earlier counts as it ended."""
    history = folder.metrics()
    for entry in history:
        if entry["round"] == to and (folder.finished or to < _rounds_of(folder)):
            return Outcome.of(entry)
    return Outcome.of(history[-1]) if folder.finished and history[-1]["round"] < to else None


def _rounds_of(folder: RunFolder) -> int:
    return int(folder.config()["rounds"])


def _rounds(config: Config) -> int:
    assert config.rounds is not None  # candidates are resolved
    return config.rounds
