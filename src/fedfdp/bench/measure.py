"""Times peers against each other: every repetition runs each once, in another order, and ratios are taken within it.

On a machine that others use too, seconds mean little; ratios of neighbours in time mean something.
"""

import random
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedfdp.bench.peers import Peer

LEAST, MOST = 3, 60  # repetitions
PATIENCE = 60.0  # seconds; a peer whose first step takes longer is left out
REFERENCE = "plain"


@dataclass(frozen=True)
class Timing:
    """A peer's steps: the median of their seconds, and median and quartiles of their ratios to the plain ones."""

    seconds: float
    ratio: float
    low: float
    high: float
    repeats: int


def interleaved(peers: Mapping[str, Peer], *, seconds: float) -> dict[str, Timing]:
    """Timings of all peers, the plain one among them; about so many seconds for each. The too slow ones are not in it.

    A peer steps until its seconds are used up, and LEAST times unless that takes as many times its seconds. The plain
    one steps as long as any other does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say of themselves
        taken = _taken(peers, seconds)
    return {name: _timing(times, taken[REFERENCE]) for name, times in taken.items()}


def _taken(peers: Mapping[str, Peer], seconds: float) -> dict[str, list[float]]:
    """The seconds of each peer's steps, repetition by repetition."""
    kept = {name: peer for name, peer in peers.items() if _warm(peer) or name == REFERENCE}
    taken: dict[str, list[float]] = {name: [] for name in kept}
    order = random.Random(0)
    for _ in range(MOST):
        due = [name for name, times in taken.items() if _goes_on(times, seconds)]
        if not due:
            break
        due = sorted({*due, REFERENCE})
        order.shuffle(due)
        for name in due:
            taken[name].append(_timed(kept[name]))
    return taken


def _goes_on(times: list[float], seconds: float) -> bool:
    return not times or sum(times) < seconds * (LEAST if len(times) < LEAST else 1)


def _warm(peer: Peer) -> bool:
    """A step that does not count; False if it takes too long."""
    return _timed(peer) <= PATIENCE


def _timed(peer: Peer) -> float:
    peer.prepare()
    start = time.perf_counter()
    peer.step()
    return time.perf_counter() - start


def _timing(times: list[float], plain: list[float]) -> Timing:
    # A peer that has stopped stays stopped, so its repetitions are the first of the plain one's.
    ratios = np.array(times) / np.array(plain[: len(times)])
    low, ratio, high = (float(value) for value in np.percentile(ratios, [25, 50, 75]))
    return Timing(float(np.median(times)), ratio, low, high, len(times))
