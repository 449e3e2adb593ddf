"""The `fedfdp` command. Each command is a module of its own; none imports torch before it has to."""

import sys
from collections.abc import Mapping

import typer

from fedfdp.core.errors import FedFDPError
from fedfdp.core.importing import imported

# A command's name, and its function; or the Typer of a command that has commands below it. In the order of --help.
COMMANDS = {
    "init": "fedfdp.cli.init:init",
    "run": "fedfdp.cli.run:run",
    "show": "fedfdp.cli.show:show",
    "export": "fedfdp.cli.export:export",
    "predict": "fedfdp.cli.predict:predict",
    "joining": "fedfdp.cli.joining:joining",
    "report": "fedfdp.cli.report:report",
    "officer": "fedfdp.cli.officer:officer",
    "watch": "fedfdp.cli.watch:watch",
    "plan": "fedfdp.cli.plan:plan",
    "audit": "fedfdp.cli.audit:audit",
    "bench": "fedfdp.cli.bench:bench",
    "lambda": "fedfdp.cli.lambda_star:lambda_star",
    "tune": "fedfdp.cli.tune:tune",
    "reproduce": "fedfdp.cli.reproduce:reproduce",
    "node": "fedfdp.cli.node:node",
    "server": "fedfdp.cli.server:server",
    "deploy": "fedfdp.cli.deploy:app",
    "data": "fedfdp.cli.data:app",
    "models": "fedfdp.cli.models:app",
    "runs": "fedfdp.cli.runs:app",
}


def build(commands: Mapping[str, str]) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        name="fedfdp",
        help="Federated learning that is private for every record, fair to every data holder, and accurate.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name, path in commands.items():
        found = imported(path, f"command {name}")
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


app = build(COMMANDS)


def main() -> None:
    """Runs the command line; what the user can fix is one line and exit code 2."""
    try:
        app()
    except FedFDPError as error:
        print(f"fedfdp: {error}", file=sys.stderr)
        sys.exit(2)
