"""Several runs at once, each in its own process with one thread. If it is killed, the same sweep continues later.

A worker only reports how far it is; results are read from the run folders.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedfdp.core.errors import DivergedError, FedFDPError, require
from fedfdp.engines.ray.settings import check_ray
from fedfdp.fairness.metrics import METRICS
from fedfdp.native.threads import cores
from fedfdp.runs.build import pinned
from fedfdp.runs.config import Config
from fedfdp.runs.session import Update
from fedfdp.runs.store import Store
from fedfdp.runs.tracking import Track, tracker

if TYPE_CHECKING:
    from ray.util.queue import Queue

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
    ray: str | None = None,
    log: str | None = None,
    watch: Callable[[RunProgress], None] = lambda progress: None,
) -> dict[Path, str]:
    """Runs what is not done yet, `jobs` at a time. Returns which runs failed and why; the others are in the store.

    With `ray`, the address of a cluster, its cores run them: the store is then a folder that all its machines see.
    """
    waiting: deque[Config] = deque()
    for path, config in {store.path(c): replace(c, threads=1) for c in pinned(configs)}.items():
        if store.finished(config):
            watch(RunProgress(path.name, "found", config.rounds or 0, config.rounds or 0))
        else:
            waiting.append(config)
    if ray is not None:
        return over_cluster(waiting, store.root, ray, log, watch)
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
                    # One that failed leaves its process: what its loss or a class keeps would reach the next run.
                    if waiting and progress.state == "done" and worker.process.is_alive():
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
            connection.send(completed(config, store, log, connection.send))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def completed(config: Config, store: Store, log: str | None, tell: Callable[[RunProgress], object]) -> RunProgress:
    """Runs a config into the store, or goes on with it; how it ended. One that diverged is done: that is its result."""
    name = store.path(config).name
    try:
        with suppress(DivergedError), tracker(log, store.root, name, config.to_dict()) as track:
            store.complete(config, _Reporter(tell, name, track))
        summary = store.run(config).summary()
        return RunProgress(name, "done", summary["rounds"], summary["rounds"], _headline(summary))
    except FedFDPError as error:
        return RunProgress(name, "failed", message=str(error))


def over_cluster(
    configs: Sequence[Config], root: Path, address: str, log: str | None, watch: Callable[[RunProgress], None]
) -> dict[Path, str]:
    """Each run is a task of one core; one whose worker is lost goes on elsewhere from its checkpoint."""
    check_ray()
    import ray
    from ray.util.queue import Queue

    from fedfdp.engines.ray.cluster import connect, room

    started, store, failed = connect(address, "ray"), Store(root.resolve()), dict[Path, str]()
    require(room(1, 0) > 0, "ray", address, "no machine of this cluster has a core", "add one that has")
    said, run = Queue(), ray.remote(num_cpus=1, max_retries=-1, max_calls=1)(_on_cluster)
    tasks = {run.remote(config, store, log, said): config for config in configs}
    try:
        while tasks:
            done, _ = ray.wait(list(tasks), timeout=SECONDS_BETWEEN_REPORTS)
            for progress in said.get_nowait_batch(said.qsize()):
                watch(progress)
            for task in done:
                path = root / store.path(tasks.pop(task)).name
                try:
                    progress = ray.get(task)
                except ray.exceptions.RayError as error:
                    progress = RunProgress(path.name, "failed", message=str(error).strip().splitlines()[-1])
                watch(progress)
                if progress.state == "failed":
                    failed[path] = progress.message
    finally:
        for task in tasks:
            ray.cancel(task)
        said.shutdown()
        if started:
            ray.shutdown()
    return failed


def _on_cluster(config: Config, store: Store, log: str | None, said: "Queue") -> RunProgress:
    said.put(RunProgress(store.path(config).name, "started", 0, config.rounds or 0))
    return completed(config, store, log, said.put)


def _headline(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: values.get(name) for name, metric in METRICS.items() if metric.line is not None}


class _Reporter:
    """Tells the sweep how far the run is. If the sweep is gone, it stops the run, which then saves itself."""

    def __init__(self, tell: Callable[[RunProgress], object], name: str, track: Track) -> None:
        self.tell, self.name, self.track, self.last = tell, name, track, 0.0

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
            self.tell(progress)
        except (ConnectionError, OSError):
            raise KeyboardInterrupt from None
