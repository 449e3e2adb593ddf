"""A command is one module and one line in a list."""

import sys
import types

import pytest
import typer
import typer.rich_utils
from typer.testing import CliRunner

from fedfdp.cli.main import COMMANDS, app, build


def test_a_toy_command_and_one_with_commands_below_it(monkeypatch):
    below = typer.Typer(no_args_is_help=True)

    @below.callback()
    def group() -> None:
        """Several toys."""

    @below.command()
    def deep() -> None:
        print("deeper")

    def toy(word: str) -> None:
        """Says a word."""
        print(f"toy says {word}")

    monkeypatch.setitem(sys.modules, "toy_command", types.SimpleNamespace(toy=toy, app=below))
    app = build({**COMMANDS, "toy": "toy_command:toy", "toys": "toy_command:app"})
    runner = CliRunner()
    assert runner.invoke(app, ["toy", "hello"]).output == "toy says hello\n"
    assert runner.invoke(app, ["toys", "deep"]).output == "deeper\n"
    told = runner.invoke(app, ["--help"]).output
    assert "Says a word." in told
    for name in COMMANDS:
        assert f" {name} " in told


def commands(command, path=()):
    """Every command and every group of commands, with the words that call it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*c, id=" ".join(c[0])) for c in commands(typer.main.get_command(app))]
)
def test_help_shows_every_word_of_its_texts(path, command, monkeypatch):
    """A word in brackets is markup for rich, and vanishes, unless it is written \\[so]."""
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 1000)  # one line for each text
    shown = " ".join(CliRunner().invoke(app, [*path, "--help"]).output.split())
    for text in (command.help, *(getattr(parameter, "help", None) for parameter in command.params)):
        assert " ".join((text or "").replace("\\[", "[").split()) in shown
