"""How far an audit is: a bar with the time left on a terminal, ten lines elsewhere; on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how many are done."""
    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), TextColumn(what), BarColumn(bar_width=24), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, tenths = bar.add_task("", total=total), 0

        def count(done: int) -> None:
            nonlocal tenths
            bar.update(task, completed=done)
            if not console.is_terminal and 10 * done // total > tenths:
                tenths = 10 * done // total
                print(f"{done}/{total} {what}", file=sys.stderr, flush=True)

        yield count
