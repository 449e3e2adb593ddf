"""How far fetching or reading records is, on stderr: one changing line on a terminal, else one line per step."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """Shows each step that it is called with."""

    def __init__(self, console: "Console", name: str) -> None:
        self.console, self.status = console, console.status(f"{name}: reading")
        self.last = ""

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def __call__(self, line: str) -> None:
        topic = line.split(":")[0]
        if self.console.is_terminal:
            self.status.update(line)
        elif not re.search(" MB| left$", line) or topic != self.last:  # counts that rise are shown on a terminal only
            self.console.print(line, highlight=False, soft_wrap=True)
        self.last = topic
