"""A command is one module and one line in a list."""

import sys
import types

import typer
from typer.testing import CliRunner

from fedfdp.cli.main import COMMANDS, build


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
