"""Runs as numbers for Prometheus, by its own client library. Names of runs, clients and nodes are labels."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fedfdp.report.section import Json
from fedfdp.watch.alarms import KINDS
from fedfdp.watch.snapshot import STATES

TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OF_RUN = {  # what a run's record holds → name and meaning here
    "round": ("fedfdp_round", "Rounds that are done"),
    "rounds": ("fedfdp_rounds", "Rounds that the run will have"),
    "left": ("fedfdp_seconds_left", "Seconds to the end, at the pace of the last rounds"),
    "pace": ("fedfdp_round_seconds", "Seconds a round, a moving mean"),
    "took_part": ("fedfdp_took_part", "Clients whose uploads were used in the last round"),
}


def exposition(runs: Iterable[tuple[str, Json]]) -> bytes:
    """The text of /metrics for these runs, by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(list(runs)))
    return generate_latest(registry)


class _Runs(Collector):
    """Reads the numbers from snapshots when it is asked for them."""

    def __init__(self, runs: list[tuple[str, Json]]) -> None:
        self.runs = runs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for key, (metric, meaning) in _OF_RUN.items():
            yield _gauge(metric, meaning, ["run"], [([name], run[key]) for name, run in self.runs])
        states = [([name, state], float(run["state"] == state)) for name, run in self.runs for state in STATES]
        yield _gauge("fedfdp_state", "1 for the state that the run is in", ["run", "state"], states)
        ringing = [
            ([name, kind], float(any(alarm["kind"] == kind for alarm in run["alarms"])))
            for name, run in self.runs
            for kind in KINDS
        ]
        yield _gauge("fedfdp_alarm", "1 for every kind of alarm that there is now", ["run", "kind"], ringing)
        last = [
            ([name, metric], values[-1])
            for name, run in self.runs
            for metric, values in run["history"].items()
            if metric != "round" and values
        ]
        yield _gauge("fedfdp_measure", "Measures of the last evaluation", ["run", "measure"], last)
        for key, meaning in (("loss", "Loss on a client's test records"), ("accuracy", "Accuracy on them")):
            rows = [
                ([name, client], value)
                for name, run in self.runs
                for client, value in zip(run["clients"]["names"], (run["clients"][key] or [[]])[-1], strict=False)
            ]
            yield _gauge(f"fedfdp_client_{key}", meaning, ["run", "client"], rows)
        yield from self._privacy()
        up = [
            ([name, client], float(one["state"] in ("here", "asked")))
            for name, run in self.runs
            for client, one in zip(run["clients"]["names"], run["standing"] or [], strict=False)
        ]
        yield _gauge("fedfdp_node_up", "1 for a node that is connected and takes part", ["run", "node"], up)

    def _privacy(self) -> Iterator[GaugeMetricFamily]:
        for key, metric, meaning in (
            ("epsilon", "fedfdp_client_epsilon", "ε that a client has used up, for display: never a number to claim"),
            ("budget", "fedfdp_client_epsilon_budget", "ε that it may spend"),
        ):
            rows = [
                ([name, client], value)
                for name, run in self.runs
                if run["spent"]
                for client, value in zip(run["clients"]["names"], run["spent"][key], strict=True)
            ]
            yield _gauge(metric, meaning, ["run", "client"], rows)


def _gauge(
    name: str, meaning: str, labels: list[str], rows: Iterable[tuple[list[str], float | None]]
) -> GaugeMetricFamily:
    """A gauge; what is not known is left out."""
    made = GaugeMetricFamily(name, meaning, labels=labels)
    for label, value in rows:
        if value is not None:
            made.add_metric([_clean(part) for part in label], float(value))
    return made


def _clean(text: str) -> str:
    """A name that can be written in UTF-8."""
    return text.encode("utf-8", "replace").decode()
