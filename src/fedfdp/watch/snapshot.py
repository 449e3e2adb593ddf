"""A run as its folder shows it now: what the report has of it, and how it goes."""

import math

from fedfdp.core.errors import RunError
from fedfdp.report.contents import document
from fedfdp.report.section import Json
from fedfdp.runs.folder import (
    CHECKPOINT,
    CLIENTS,
    IDENTITY,
    LIVE,
    METRICS,
    PRIVACY_JSON,
    STOP,
    SUMMARY,
    RunFolder,
)

MOST_VALUES = 20_000  # of single clients, over all evaluations: beyond that only the last one is shown
WATCHED = (IDENTITY, LIVE, METRICS, CLIENTS, SUMMARY, PRIVACY_JSON, STOP, CHECKPOINT)

# What a run does, in words. `lost` is a run that said "running" last, and whose process is gone.
STATES = ("running", "stopping", "stopped", "interrupted", "failed", "diverged", "lost", "finished", "not running")


def state_of(folder: RunFolder, live: Json) -> str:
    """One of `STATES`."""
    if folder.running:
        return "stopping" if folder.stop_asked else "running"
    said = live.get("state")
    if folder.finished:
        return "diverged" if said == "diverged" else "finished"
    if said == "running":
        return "lost"
    return str(said) if said in STATES else "not running"


def signature(folder: RunFolder) -> tuple[object, ...]:
    """What changes whenever there is something new to show."""
    found: list[object] = [folder.running]
    for name in WATCHED:
        try:
            status = (folder.path / name).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def brief(name: str, folder: RunFolder) -> Json:
    """A run in a list of runs."""
    live = _live(folder)
    state = state_of(folder, live)
    return {"name": name, "state": state, "round": live.get("round"), "rounds": live.get("rounds")}


def snapshot(folder: RunFolder) -> Json:
    """All that the page shows of a run."""
    found, live = document([folder]), _live(folder)
    run: Json = found["runs"][0]
    state = state_of(folder, live)
    rounds = live.get("rounds") or run["rounds"]
    # Evaluations are further apart than rounds: while a run goes on, live.json knows better.
    done: int = run["round"] if folder.finished or "round" not in live else live["round"]
    run |= {
        "state": state,
        "why": live.get("why") or "",
        "round": done,
        "rounds": rounds,
        "started": live.get("started"),
        "written": live.get("written"),
        "left": _left(state, live, done, rounds),
        "pace": live.get("pace"),
        "took_part": live.get("took_part"),
        "quorum": live.get("quorum"),
        "standing": _standing(run, live),
        "spent": _spent(run, live),
        "resume": None if folder.running or folder.finished else _resume(run),
    }
    run["clients"] = _trimmed(run["clients"])
    del run["settings"], run["privacy"]  # long, and in the report
    return run


def _live(folder: RunFolder) -> Json:
    try:
        return folder.live() or {}
    except RunError:  # made by something else, or damaged: the rest can still be shown
        return {}


def _resume(run: Json) -> str:
    return f"fedfdp {'server --config RUN.toml' if run['elsewhere'] else 'run'} --resume {run['folder']}"


def _left(state: str, live: Json, done: int, rounds: int | None) -> float | None:
    """Seconds that the run will still take at the pace of its last rounds."""
    pace = live.get("pace")
    if state != "running" or not isinstance(pace, int | float) or not math.isfinite(pace) or rounds is None:
        return None
    return max(0.0, pace * (rounds - done))


def _standing(run: Json, live: Json) -> list[Json] | None:
    """How each node stands, in the order of the clients; None for runs in one process."""
    said = live.get("standing") or {}
    return [said.get(name) or {"state": "missing", "why": ""} for name in run["clients"]["names"]] if said else None


def _spent(run: Json, live: Json) -> Json | None:
    """What each client has used up of which budget; of folders without it, what the statement says."""
    count, spent = len(run["clients"]["names"]), live.get("spent")
    if spent and len(spent["epsilon"]) == len(spent["budget"]) == count:
        return dict(spent)
    said = (run["privacy"] or {}).get("clients") or []
    if len(said) != count or not count:
        return None
    return {"epsilon": [one["epsilon"] for one in said], "budget": [one["budget"] for one in said]}


def _trimmed(clients: Json) -> Json:
    """The record of single clients, cut to the last evaluation where there is too much to send again and again."""
    rows = len(clients["round"])
    if rows * len(clients["names"]) <= MOST_VALUES:
        return clients
    cut = {
        name: rows and value[-1:] for name, value in clients.items() if isinstance(value, list) and len(value) == rows
    }
    return clients | {name: value for name, value in cut.items() if name not in ("names", "train", "test", "classes")}
