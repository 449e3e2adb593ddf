"""`pld`: privacy loss distributions of dp-accounting, on a grid that rounds up: every number is an upper bound.

Where the grid or floating point cannot resolve δ, the distributions give infinity, and the Rényi bound is taken.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from fedfdp.privacy.accounting.base import MOST_ROUNDS, Accountant
from fedfdp.privacy.accounting.events import Adjacency, History, bucket, merge, scale
from fedfdp.privacy.accounting.rdp import RDP
from fedfdp.privacy.accounting.renyi import rdp_epsilon
from fedfdp.privacy.accounting.sampled import sampled_gaussian
from fedfdp.privacy.accounting.search import largest

INTERVAL = 1e-4
DISPLAY_INTERVAL = 1e-3
_COARSEST = 1e-2
_MOST_CELLS = 2**21  # of what all events make together
_MOST_SINGLE_CELLS = 2**18  # of one event: reached below σ ≈ 0.4
_MOST_KINDS = 64
_MOST_GAUSSIAN = 500.0  # beyond this ε the formula overflows; the Rényi bound is taken
_FEW_KINDS = 8  # of which a bound is shown by distributions

# Relative error of one FFT composition; δ is lessened by it, so that rounding cannot under-state ε.
_ROUNDING = 1e-15

_RELATION = {"zero-out": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace-one": NeighboringRelation.REPLACE_ONE}


@dataclass(frozen=True)
class PLD(Accountant):
    """The tightest, for schedules fixed beforehand. The default."""

    interval: float = INTERVAL  # of the grid; a coarser one is as valid, quicker and looser

    def price(self, history: History, delta: float, adjacency: Adjacency) -> float:
        """Distributions and Rényi curves bound the same ε from above, so the smaller may be taken."""
        rdp = rdp_epsilon(history, delta, adjacency)
        value = min(rdp, pld_epsilon(history, delta, adjacency, self.interval))
        # replace-one costs no less by definition; rounding could say otherwise where δ ≈ q
        return value if adjacency == "zero-out" else max(value, self.epsilon(history, delta))

    def upper_bound(self, history: History, delta: float) -> float:
        """At most about half a percent above `epsilon`, which rises with every count: counts are rounded up to eight
        significant bits, so that few different ones are computed, and the grid is coarser."""
        if len(history) > _FEW_KINDS:
            return RDP().epsilon(history, delta)
        rounded = tuple((q, sigma, _round_up(count)) for q, sigma, count in history)
        return PLD(DISPLAY_INTERVAL).epsilon(rounded, delta)

    def max_count(self, after: History, step: History, budget: float, delta: float) -> int:
        certain = RDP().max_count(after, step, budget, delta)  # what fits by the looser bound fits by this one
        if certain >= MOST_ROUNDS:
            return certain
        cost = lambda n: self.epsilon(merge(after, scale(step, n)), delta)  # noqa: E731
        return largest(cost, budget, fits=certain, most=MOST_ROUNDS)

    @property
    def coarser(self) -> tuple[tuple[Accountant, float], ...]:
        return (RDP(), 0.05), (PLD(DISPLAY_INTERVAL), 1e-3)


def _round_up(count: int) -> int:
    spare = max(0, count.bit_length() - 8)
    return -(-count >> spare) << spare


def pld_epsilon(history: History, delta: float, adjacency: Adjacency = "zero-out", finest: float = INTERVAL) -> float:
    """ε of the history at δ; infinity where it cannot be resolved."""
    history = bucket(_join_unsampled(history), _MOST_KINDS)
    if len(history) == 1 and history[0][0] == 1:
        return gaussian_epsilon(history[0][1], delta, adjacency)
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


def gaussian_epsilon(sigma: float, delta: float, adjacency: Adjacency = "zero-out") -> float:
    """ε of one Gaussian release of all records: its δ(ε) is known in closed form, so no grid is needed.

    A search for the least ε whose δ is allowed; what is handed back was itself found to be allowed.
    """
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0  # one record exchanged moves the sum twice as far
    mechanism = GaussianPrivacyLoss(sigma, sensitivity=sensitivity)
    allowed = delta * (1 - 1e-9)  # room for the rounding of the formula
    high = 1.0
    while mechanism.get_delta_for_epsilon(high) > allowed:
        high *= 2
        if high > _MOST_GAUSSIAN:
            return math.inf
    low = 0.0
    if mechanism.get_delta_for_epsilon(low) <= allowed:
        return low
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if mechanism.get_delta_for_epsilon(middle) <= allowed else (middle, high)
    return high


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
    if q < 1 and adjacency == "zero-out":
        return sampled_gaussian(q, sigma, interval)
    return pld.from_gaussian_mechanism(
        standard_deviation=sigma,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=_RELATION[adjacency],
    )
