"""Privacy loss distributions of dp-accounting, on a pessimistic grid: every number is an upper bound.

Never better than the arithmetic: where the grid or the floating point cannot resolve δ, it says so with infinity.
"""

import math
from functools import lru_cache

from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from fedfdp.privacy.accounting.events import Adjacency, History, bucket
from fedfdp.privacy.accounting.rdp import rdp_epsilon

INTERVAL = 1e-4
DISPLAY_INTERVAL = 1e-3
_COARSEST = 1e-2
_MOST_CELLS = 2**21  # of what all events make together
_MOST_SINGLE_CELLS = 2**18  # of one event: reached below σ ≈ 0.4
_MOST_KINDS = 64

# Relative error of one FFT composition; δ is lessened by it, so that rounding cannot under-state ε.
_ROUNDING = 1e-15

_RELATION = {"zero-out": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace-one": NeighboringRelation.REPLACE_ONE}


def pld_epsilon(history: History, delta: float, adjacency: Adjacency = "zero-out", finest: float = INTERVAL) -> float:
    """ε of the history at δ; infinity where it cannot be resolved."""
    history = bucket(_join_unsampled(history), _MOST_KINDS)
    interval = _interval(history, adjacency, finest)
    rounding = _ROUNDING * sum(count for _, _, count in history)
    if not history or interval > _COARSEST or rounding > delta / 100:
        return math.inf if history else 0.0
    composed = None
    for q, sigma, count in history:
        part = _single(q, sigma, interval, adjacency)
        part = part.self_compose(count) if count > 1 else part
        composed = part if composed is None else composed.compose(part)
    return float(composed.get_epsilon_for_delta(delta - rounding)) if composed else 0.0


def _join_unsampled(history: History) -> History:
    """Without subsampling, Gaussians compose to one Gaussian exactly: no grid is needed for that."""
    precision = math.fsum(count / sigma**2 for q, sigma, count in history if q == 1)
    sampled = tuple(part for part in history if part[0] < 1)
    return (*sampled, (1.0, 1 / math.sqrt(precision), 1)) if precision else sampled


def _interval(history: History, adjacency: Adjacency, finest: float) -> float:
    """The finest grid that holds the losses in memory; a coarser one is as valid, only looser."""
    if not history:
        return finest
    single = max(10 / sigma + 0.5 / sigma**2 for _, sigma, _ in history) * (2 if adjacency == "replace-one" else 1)
    reach = single + rdp_epsilon(history, 1e-15, adjacency)
    excess = max(reach / _MOST_CELLS, single / _MOST_SINGLE_CELLS) / finest
    return math.ldexp(finest, max(0, math.ceil(math.log2(excess))))


@lru_cache(maxsize=64)
def _single(q: float, sigma: float, interval: float, adjacency: Adjacency) -> pld.PrivacyLossDistribution:
    return pld.from_gaussian_mechanism(
        standard_deviation=sigma,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=_RELATION[adjacency],
    )
