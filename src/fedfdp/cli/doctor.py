"""fedfdp doctor: whether a node or a coordinator can work, one line for each thing to look at."""

import json
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    config: Annotated[Path, typer.Argument(help="A node.toml, or a run's config with a \\[flower] section.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON, and nothing else.")] = False,
) -> None:
    """Look over a node or a coordinator: clock, disk, port, certificate, key, data, budget. Exit code 1: one is bad."""
    from fedfdp.engines.flower import require_flower

    require_flower()
    from fedfdp.deploy.doctor import examine

    found = examine(config)
    if as_json:
        print(json.dumps([vars(finding) for finding in found]))
    else:
        for finding in found:
            print(f"{finding.state:4}  {finding.what:11}  {finding.said}")
    if any(finding.state == "bad" for finding in found):
        raise SystemExit(1)
