"""What a run says of itself while it goes on, in live.json of its folder; and how it is asked to end.

It is for people who watch. Nothing is computed from it, and a run that is resumed does not read it.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType

from fedfdp.core.errors import DivergedError, FedFDPError
from fedfdp.runs.folder import Json, RunFolder
from fedfdp.training.protocols import Accounts, Engine, Members
from fedfdp.training.rounds import Step

EVERY = 0.5  # seconds between two writings, at least
SHARE = 0.02  # of the run's time that writing may take
MEMORY = 0.8  # of the pace before, when a round is counted in


class Stopped(KeyboardInterrupt):
    """The run was asked to end, and did so between two rounds. To all that handle an interrupt it is one."""


class Live:
    """Keeps live.json up to date, and says in it how the run ended. Without a folder it does nothing."""

    def __init__(
        self,
        folder: RunFolder | None,
        members: Members,
        engine: Engine,
        accounts: Accounts | None,
        *,
        done: int,
        rounds: int,
    ) -> None:
        self._folder, self._members, self._engine, self._accounts = folder, members, engine, accounts
        self._said: Json = {"round": done, "rounds": rounds, "took_part": None, "pace": None, "quorum": engine.quorum}
        self._next, self._round_began = 0.0, 0.0

    def __enter__(self) -> "Live":
        self._round_began = time.monotonic()
        self._said["started"] = time.time()
        if self._folder is not None:
            self._engine.listener = self.heard
            self._write("running")
        return self

    def ended(self, step: Step) -> None:
        """Counts a round in; raises `Stopped` where somebody asked for the end."""
        now = time.monotonic()
        took, before = now - self._round_began, self._said["pace"]
        self._round_began = now
        self._said["pace"] = took if before is None else MEMORY * before + (1 - MEMORY) * took
        self._said |= {"round": step.round, "took_part": step.took_part}
        if step.evaluation is not None or now >= self._next:
            self._write("running")
        if step.round < step.rounds:
            self._stop_if_asked()

    def heard(self) -> None:
        """Called by an engine while it waits for clients, and when one of them has answered or is gone."""
        if time.monotonic() >= self._next:
            self._write("running")
        self._stop_if_asked()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.listener = None
        if self._folder is not None:
            self._folder.forget_stop()
        if kind is None:
            self._write("finished")
        elif isinstance(error, KeyboardInterrupt):
            self._write("stopped" if isinstance(error, Stopped) else "interrupted")
        elif isinstance(error, DivergedError):
            self._write("diverged", str(error))
        else:
            self._write("failed", str(error) if isinstance(error, FedFDPError) else kind.__name__)

    def _stop_if_asked(self) -> None:
        if self._folder is not None and self._folder.stop_asked:
            raise Stopped("stopped as asked")

    def _write(self, state: str, why: str = "") -> None:
        if self._folder is None:
            return
        start = time.monotonic()
        standing = {name: asdict(one) for name, one in self._engine.standing.items()}
        now = {"state": state, "why": why, "written": time.time(), "standing": standing, "spent": self._spent()}
        self._folder.write_live(self._said | now)
        took = time.monotonic() - start
        self._next = start + max(EVERY, took / SHARE)

    def _spent(self) -> Mapping[str, list[float | None]] | None:
        """What each client has used up of which budget, in the order of the members; None without privacy."""
        if self._accounts is None:
            return None
        used, names = self._accounts.used(), self._members.names
        budgets = [self._accounts.ledger(name).budget for name in names]
        return {"epsilon": [used.get(name, 0.0) for name in names], "budget": budgets}
