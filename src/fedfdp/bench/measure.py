"""Times peers against each other. In each repetition every peer has a turn, in a new order; ratios are taken within it.

On a machine that others use too, seconds mean little; ratios of turns that follow each other mean something. A turn is
one step, or several where steps are short: a single short step would mostly measure what the peer before it has left in
the caches.
"""

import random
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedfdp.bench.peers.base import Peer

LEAST, MOST = 3, 60  # repetitions
TURN = 0.1  # seconds that a peer steps until it is the turn of another
PATIENCE = 60.0  # seconds; a peer whose first step takes longer is left out
REFERENCE = "plain"

Clock = Callable[[], float]  # seconds; `time.process_time` counts those of the processor alone


@dataclass(frozen=True)
class Timing:
    """A peer's turns: the median of a step's seconds, and median and quartiles of their ratios to the plain ones."""

    seconds: float
    ratio: float
    low: float
    high: float
    repeats: int


def interleaved(peers: Mapping[str, Peer], *, seconds: float, clock: Clock | None = None) -> dict[str, Timing]:
    """Timings of all peers, the plain one among them, about so many seconds each. Peers that are too slow are left out.

    A peer has turns until its seconds are used up, and LEAST of them unless that takes as many times its seconds. The
    plain one has turns as long as any other does. Without a clock, it is the time that passes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of themselves
        taken = _taken(peers, seconds, clock or time.perf_counter)
    return {name: _timing(times, taken[REFERENCE]) for name, times in taken.items()}


def _taken(peers: Mapping[str, Peer], seconds: float, clock: Clock) -> dict[str, list[float]]:
    """The seconds of each peer's step, the mean over a turn, by repetition; the first step of all is free."""
    kept = {name: peer for name, peer in peers.items() if _timed(peer, clock) <= PATIENCE or name == REFERENCE}
    taken: dict[str, list[float]] = {name: [] for name in kept}
    used = dict.fromkeys(kept, 0.0)
    order = random.Random(0)
    for _ in range(MOST):
        due = [name for name in kept if _goes_on(len(taken[name]), used[name], seconds)]
        if not due:
            break
        due = sorted({*due, REFERENCE})
        order.shuffle(due)
        for name in due:
            steps = [_timed(kept[name], clock)]
            while sum(steps) < TURN:
                steps.append(_timed(kept[name], clock))
            taken[name].append(float(np.mean(steps)))
            used[name] += sum(steps)
    return taken


def _goes_on(turns: int, used: float, seconds: float) -> bool:
    return not turns or used < seconds * (LEAST if turns < LEAST else 1)


def _timed(peer: Peer, clock: Clock) -> float:
    peer.prepare()
    start = clock()
    peer.step()
    return clock() - start


def _timing(times: list[float], plain: list[float]) -> Timing:
    # A peer that has stopped stays stopped, so its repetitions are the first of the plain one's.
    ratios = np.array(times) / np.array(plain[: len(times)])
    low, ratio, high = (float(value) for value in np.percentile(ratios, [25, 50, 75]))
    return Timing(float(np.median(times)), ratio, low, high, len(times))
