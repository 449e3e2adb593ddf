"""Several runs at once, each in its own process with one thread. If it is killed, the same sweep continues later.

A worker only reports how far it is; results are read from the run folders.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

from fedfdp.core.errors import FedFDPError
from fedfdp.fairness.metrics import METRICS
from fedfdp.native.threads import cores
from fedfdp.runs.build import pinned
from fedfdp.runs.config import Config
from fedfdp.runs.session import Update
from fedfdp.runs.store import Store
from fedfdp.runs.tracking import Track, tracker

State = Literal["found", "started", "running", "done", "failed"]
SECONDS_BETWEEN_REPORTS = 0.3


@dataclass(frozen=True)
class RunProgress:
    """How far one run of a sweep is."""

    run: str
    state: State
    round: int = 0
    rounds: int = 0
    measures: dict[str, float | None] = field(default_factory=dict)  # those of the progress line
    message: str = ""


def sweep(
    configs: Sequence[Config],
    store: Store,
    *,
    jobs: int | None = None,
    log: str | None = None,
    watch: Callable[[RunProgress], None] = lambda progress: None,
) -> dict[Path, str]:
    """Runs what is not done yet, `jobs` at a time. Returns which runs failed and why; the others are in the store."""
    waiting: deque[Config] = deque()
    for path, config in {store.path(c): replace(c, threads=1) for c in pinned(configs)}.items():
        if store.finished(config):
            watch(RunProgress(path.name, "found", config.rounds or 0, config.rounds or 0))
        else:
            waiting.append(config)
    failed: dict[Path, str] = {}
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < (jobs or cores()):
                worker = _Worker.start(store.root, log)
                workers[worker.connection] = worker
                watch(worker.give(waiting.popleft()))
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                progress = worker.receive()
                if progress.state in ("done", "failed"):
                    if progress.state == "failed":
                        failed[store.path(worker.config)] = progress.message
                    if waiting and worker.process.is_alive():
                        watch(progress)
                        progress = worker.give(waiting.popleft())
                    else:
                        workers.pop(connection).stop()
                watch(progress)
    finally:
        for worker in workers.values():
            worker.stop()
    return failed


class _Worker:
    """The sweep's end of a process that runs one config after another."""

    def __init__(self, process: SpawnProcess, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.config = Config()

    @classmethod
    def start(cls, root: Path, log: str | None) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, root, log), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def give(self, config: Config) -> RunProgress:
        self.config = config
        self.connection.send(config)
        return RunProgress(Store(Path()).path(config).name, "started", 0, config.rounds or 0)

    def receive(self) -> RunProgress:
        try:
            progress: RunProgress = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            name = Store(Path()).path(self.config).name
            reason = f"its process ended with code {self.process.exitcode}"
            return RunProgress(name, "failed", message=f"{reason}; the same command goes on from its checkpoint")
        return progress

    def stop(self) -> None:
        """Closes the connection, on which the worker saves its run and ends."""
        self.connection.close()
        self.process.join(timeout=60)
        if self.process.is_alive():
            self.process.terminate()


def _work(connection: Connection, root: Path, log: str | None) -> None:
    """What a worker does. When the sweep ends, for whatever reason, the connection closes and the worker ends too."""
    store = Store(root)
    try:
        while True:
            config: Config = connection.recv()
            name = store.path(config).name
            try:
                with tracker(log, root, name, config.to_dict()) as track:
                    store.complete(config, _Reporter(connection, name, track))
                summary = store.run(config).summary()
                rounds = summary["rounds"]
                connection.send(RunProgress(name, "done", rounds, rounds, _headline(summary)))
            except FedFDPError as error:
                connection.send(RunProgress(name, "failed", message=str(error)))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def _headline(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: values.get(name) for name, metric in METRICS.items() if metric.line is not None}


class _Reporter:
    """Tells the sweep how far the run is. If the sweep is gone, it stops the run, which then saves itself."""

    def __init__(self, connection: Connection, name: str, track: Track) -> None:
        self.connection, self.name, self.track, self.last = connection, name, track, 0.0

    def __call__(self, update: Update) -> None:
        self.track(update)
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN_REPORTS:
            return
        self.last = now
        seen = update.history[-1] if update.history else {}
        step = update.step
        try:
            progress = RunProgress(self.name, "running", step.round, step.rounds, _headline(seen))
            self.connection.send(progress)
        except (ConnectionError, OSError):
            raise KeyboardInterrupt from None
