"""fedfdp watch: a local page that shows runs while they go on."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def watch(
    place: Annotated[
        Path, typer.Argument(help="A run, or a folder with runs below it.", metavar="[RUN|STORE]", show_default=True)
    ] = Path("runs"),
    port: Annotated[int | None, typer.Option(help="Where the page listens; none: 8765, or a free one.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show runs on a local page that updates by itself, and let them be stopped safely. Ctrl-C ends the page alone."""
    from fedfdp.core.errors import RunError
    from fedfdp.watch.server import watching

    if not place.is_dir():
        raise RunError(f"{place} is no folder; give a run, or a folder with runs below it")
    with watching(place, port, show=open_) as server:
        print(f"watch it: {server.address}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


@contextmanager
def beside(folder: Path, port: int | None, *, wanted: bool) -> Iterator[Callable[[str], None]]:
    """The page of a run that this process carries out, if it is wanted; yields what says a line there and on stderr."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if not wanted:
        if port is not None:
            from fedfdp.core.errors import SettingError

            raise SettingError("--port", port, "of the page, which is not wanted", "add --watch")
        yield say
        return
    from fedfdp.watch.server import watching

    with watching(folder, port) as server:
        say(f"watch it: {server.address}")

        def said(text: str) -> None:
            server.board.notice = text
            say(text)

        yield said
