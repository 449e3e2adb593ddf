"""Run folders that look as if a run were at work in them."""

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from report.conftest import write_run  # noqa: F401 (a fixture)


@pytest.fixture
def say() -> Callable[..., None]:
    """Writes what a run says of itself."""

    def write(path: Path, **said: Any) -> None:
        usual = {"state": "running", "why": "", "round": 6, "rounds": 10, "took_part": 4, "pace": 2.0, "quorum": None,
                 "started": time.time() - 60, "written": time.time(), "standing": {}, "spent": None}  # fmt: skip
        (path / "live.json").write_text(json.dumps(usual | said))

    return write


@pytest.fixture
def at_work() -> Iterator[Callable[[Path], Callable[[], None]]]:
    """Holds a run's lock, as the process of a run does; what it gives lets go of it."""
    with ExitStack() as stack:

        def begin(path: Path) -> Callable[[], None]:
            lock = stack.enter_context(open(path / ".lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock.close

        yield begin
