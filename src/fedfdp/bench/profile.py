"""Where the time of a round goes: the round that the bench measures, under Python's own profiler.

A profiler slows down Python, not torch: parts that are many small calls look somewhat larger than they are.
"""

import cProfile
import pstats
import time
from dataclasses import dataclass

from fedfdp.bench.cases import SAMPLES, USUAL
from fedfdp.bench.models import MODELS
from fedfdp.bench.rounds import OurRound, Task

# The functions of each part, by file and name, with all that they call. No one of them calls another.
PARTS = {
    "ledger: digest and charge": (("engines/local.py", "_charged"),),
    "batches drawn": (("client.py", "poisson"),),
    "records taken": (("engines/local.py", "_records_of"),),
    "forward pass": (("clipping/by_rules.py", "taped"),),
    "backward pass for output gradients": (("clipping/by_rules.py", "output_gradients"),),
    "layer rules: per-sample gradients or factors": (("clipping/pulled_back.py", "contributions_of"),),
    "norms and coefficients": (
        ("clipping/contributions.py", "total_norms"),
        ("clipping/bounded.py", "wanted"),
        ("clipping/bounded.py", "bounded"),
    ),
    "weighted sums by client": (("clipping/kernel.py", "_add_up"),),
    "noise, or waiting for it": (("fedfdp/native/threads.py", "ahead"), ("privacy/noise/randomness.py", "noised")),
    "weighted mean of the updates": (("fedfdp/core/weights.py", "add_"),),
}
REST = "the rest: updates, records, calls"


@dataclass(frozen=True)
class Profile:
    """Seconds of each part of a round, and of the same round without the profiler."""

    model: str
    clients: int
    parts: dict[str, float]
    alone: float


def profile(model: str, clients: int, *, rounds: int = 5) -> Profile:
    """The mean over some rounds, after one that is not counted."""
    subject = OurRound(Task(MODELS[model], clients, SAMPLES, USUAL))
    subject.step()
    started = time.perf_counter()
    for _ in range(rounds):
        subject.step()
    alone = (time.perf_counter() - started) / rounds
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(rounds):
            subject.step()
    stats = pstats.Stats(profiler)
    total = stats.total_tt / rounds  # type: ignore[attr-defined]
    parts = {name: sum(_seconds(stats, *place) for place in places) / rounds for name, places in PARTS.items()}
    return Profile(model, clients, {**parts, REST: total - sum(parts.values())}, alone)


def _seconds(stats: pstats.Stats, file: str, function: str) -> float:
    found = stats.stats.items()  # type: ignore[attr-defined]
    return float(sum(times[3] for (path, _, name), times in found if name == function and path.endswith(file)))


def table(profiles: list[Profile]) -> tuple[list[str], list[list[str]]]:
    """Head and lines: the share of each part in each profile."""
    head = ["share of a round", *(f"{p.model}, {p.clients} clients" for p in profiles)]
    names = list(profiles[0].parts)
    lines = [[name, *(f"{p.parts[name] / sum(p.parts.values()):.1%}" for p in profiles)] for name in names]
    lines.append(["a round without the profiler", *(f"{1000 * p.alone:.0f} ms" for p in profiles)])
    return head, lines
