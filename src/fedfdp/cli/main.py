"""The `fedfdp` command. Each command is a module of its own; none imports torch before it has to."""

import re
import sys
from collections.abc import Mapping
from typing import NoReturn

import click
import typer

from fedfdp.core.errors import DivergedError, FedFDPError, nearest
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
    "node": "fedfdp.cli.node:app",
    "server": "fedfdp.cli.server:server",
    "deploy": "fedfdp.cli.deploy:app",
    "doctor": "fedfdp.cli.doctor:doctor",
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
    """Runs the command line; what the user can fix is one line and exit code 2; 3 if a run diverged."""
    try:
        code = app(standalone_mode=False, prog_name="fedfdp")
    except FedFDPError as error:
        _refuse(str(error), 3 if isinstance(error, DivergedError) else 2)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.UsageError as error:
        _refuse(_usage(error))
    except click.ClickException as error:
        _refuse(error.format_message())
    except click.Abort:
        _refuse("stopped")
    except OSError as error:
        _refuse(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and who may write there")
    else:
        if isinstance(code, int) and code:
            sys.exit(code)


def _usage(error: click.UsageError) -> str:
    """What is wrong with a command line, with the nearest command if there is none of that name."""
    where, said = error.ctx.command_path if error.ctx else "fedfdp", error.format_message().rstrip(".")
    known = getattr(error.ctx.command, "commands", {}) if error.ctx else {}
    if unknown := re.match("No such command '(.*)'", said):
        return f"{unknown[0]}; {nearest(unknown[1], known)}"
    takes_set = error.ctx is not None and any("--set" in parameter.opts for parameter in error.ctx.command.params)
    if takes_set and (option := re.match("No such option: --([^ ]*)", said)):
        return f"{option[0]}; a run's settings are given as --set {option[1]}=value; see {where} --help"
    return f"{said}; see {where} --help"


def _refuse(reason: str, code: int = 2) -> NoReturn:
    print(f"fedfdp: {' '.join(reason.split())}", file=sys.stderr)
    sys.exit(code)
