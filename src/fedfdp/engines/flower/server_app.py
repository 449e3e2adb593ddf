"""The coordinator as a Flower ServerApp, for a stock SuperLink. It is an entry point: nothing else imports it."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfdp.deploy.coordinator import Network, coordinate, load

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """For `flwr run`: the run config's `config` is a file, `out` the run's folder, `resume` whether it goes on."""
    given = context.run_config
    config, settings = load(str(given["config"]))
    out = Path(str(given["out"])) if given.get("out") else None
    coordinate(config, settings, Network(grid, {}), out=out, resume=bool(given.get("resume", False)))
