"""The `fedfdp` command. Each command is a module; none imports torch before it has to."""

import sys

import typer

from fedfdp.cli import data, deploy, models, runs
from fedfdp.cli.audit import audit
from fedfdp.cli.bench import bench
from fedfdp.cli.export import export
from fedfdp.cli.lambda_star import lambda_star
from fedfdp.cli.node import node
from fedfdp.cli.plan import plan
from fedfdp.cli.predict import predict
from fedfdp.cli.report import report
from fedfdp.cli.reproduce import reproduce
from fedfdp.cli.run import run
from fedfdp.cli.server import server
from fedfdp.cli.show import show
from fedfdp.cli.tune import tune
from fedfdp.core.errors import FedFDPError

app = typer.Typer(
    name="fedfdp",
    help="Federated learning that is private for every record, fair to every data holder, and accurate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(run)
app.command("show")(show)
app.command("export")(export)
app.command("predict")(predict)
app.command("report")(report)
app.command("plan")(plan)
app.command("audit")(audit)
app.command("bench")(bench)
app.command("lambda")(lambda_star)
app.command("tune")(tune)
app.command("reproduce")(reproduce)
app.command("node")(node)
app.command("server")(server)
app.add_typer(deploy.app, name="deploy")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(runs.app, name="runs")


def main() -> None:
    """Runs the command line; what the user can fix is one line and exit code 2."""
    try:
        app()
    except FedFDPError as error:
        print(f"fedfdp: {error}", file=sys.stderr)
        sys.exit(2)
