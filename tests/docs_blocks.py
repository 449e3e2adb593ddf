"""The fenced blocks of README and docs: what each is, its commands, and whether a command line is one of ours."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(?:<!-- (\w+)(?:: ([^\n]+))? -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAMS = ("fedfdp", "make", "python", "pip", "pytest")


@dataclass(frozen=True)
class Block:
    """A block and the comment above its fence, which says what is not simply run:

    shown (neither run nor parsed), parsed (not run), slow, fails (exit code 2), prints (what the last one that fails
    says). The first three give a reason.
    """

    language: str
    text: str
    marker: str | None
    reason: str | None

    @property
    def name(self) -> str | None:
        """The file that the block is, by its first line: `# run.toml`."""
        named = re.match(r"# ([\w./-]+\.(?:py|toml))\n", self.text)
        return named[1] if named else None


@dataclass(frozen=True)
class Command:
    line: str
    environment: dict[str, str]
    words: tuple[str, ...]
    comment: str | None

    @property
    def program(self) -> str:
        return self.words[0]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(m[3], m[4], m[1], m[2]) for m in FENCE.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^\s*```", text, flags=re.MULTILINE)), f"{page.name}: a fence is not found"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a block: its lines, or those that begin with $ where output stands between them."""
    lines, found, waiting = block.text.splitlines(), [], ""
    prompted = any(line.startswith("$ ") for line in lines)
    for line in lines:
        if not waiting and prompted and not line.startswith("$ "):
            continue
        waiting += ("\n" if waiting else "") + (line if waiting else line.removeprefix("$ "))
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quotation goes on
            continue
        if words:
            found.append(_command(waiting, words))
        waiting = ""
    assert not waiting, f"an open quotation in {block.text!r}"
    return found


def _command(line: str, words: list[str]) -> Command:
    given = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        given[name] = value
    comment = re.search(r"\s# (.*)$", line) if "\n" not in line else None
    return Command(line, given, tuple(words), comment[1] if comment else None)


def check(command: Command) -> None:
    """Raises unless there is such a command, with such options and arguments; nothing is run."""
    if command.program == "fedfdp":
        _check_ours(command)
    elif command.program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(command.words[1:]) <= set(targets), command.line
    elif command.program in ("python", "pytest"):
        files = [word for word in command.words[1:] if re.fullmatch(r"[\w/]+\.py", word)]
        assert all((ROOT / file).is_file() for file in files), command.line
        if "-c" in command.words:
            compile(command.words[command.words.index("-c") + 1], command.line, "exec")
    else:
        assert command.program in PROGRAMS, command.line


def _check_ours(command: Command) -> None:
    import typer.main

    from fedfdp.cli.main import app

    ours, words = typer.main.get_command(app), list(command.words[1:])
    while hasattr(ours, "commands"):
        assert words, command.line
        if ours.invoke_without_command and words[0].startswith("-"):
            break
        assert words[0] in ours.commands, f"no such command: {command.line}"
        ours = ours.commands[words.pop(0)]
    if "[--" not in command.line:
        ours.make_context(command.line, words)
        return
    known = {option for parameter in ours.params for option in parameter.opts}  # a synopsis, with its brackets
    assert {word.lstrip("[") for word in words if word.lstrip("[").startswith("--")} <= known, command.line
