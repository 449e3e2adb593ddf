"""The live page: the report's parts and charting library, and a script that listens for news from this server alone."""

from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from typing import get_args

from fedfdp.fairness.metrics import METRICS, shown
from fedfdp.fairness.metrics.registry import TASKS, Place
from fedfdp.report.page import LIBRARY, SCRIPTS, STYLES, asset, compose

_WITHOUT_SCRIPTS = (
    "This page is kept up to date by its own script: allow scripts to see it. /metrics has the numbers as text."
)


def live_page() -> str:
    """The page of every run: which one it shows is asked of the server."""
    facts = {
        "version": version("fedfdp"),
        "metrics": {name: asdict(metric) for name, metric in METRICS.items()},
        "shown": {task: {place: [m.name for m in shown(place, task)] for place in get_args(Place)} for task in TASKS},
        "runs": [],
    }
    return compose(
        "fedfdp watch",
        [*map(asset, (LIBRARY, *SCRIPTS)), _own("watch.js")],
        [*map(asset, STYLES), _own("watch.css")],
        facts,
        without=_WITHOUT_SCRIPTS,
        more_policy="; connect-src 'self'; base-uri 'none'; form-action 'none'",
    )


def _own(name: str) -> str:
    return files("fedfdp.watch").joinpath("assets", name).read_text(encoding="utf-8")
