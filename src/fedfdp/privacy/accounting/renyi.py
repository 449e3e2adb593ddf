"""Rényi curves of dp-accounting: of one event, of a history, and what they cost as (ε, δ).

Orders are whole numbers: the curve of the subsampled Gaussian is exact there. Nothing here decides anything.
"""

from collections.abc import Sequence
from functools import lru_cache

import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from numpy.typing import NDArray

from fedfdp.privacy.accounting.events import Adjacency, History, bucket

REFERENCE_ORDERS: tuple[int, ...] = (*range(2, 64), 128, 256, 512)
ORDERS: tuple[int, ...] = (*REFERENCE_ORDERS, 1024, 4096)  # the last two only matter below ε ≈ 0.05

# The curves are sums of logarithms: their error stays below this per event, and no event may come out free.
ROUNDING = 1e-14
_MOST_KINDS = 512


@lru_cache(maxsize=4096)
def curve(q: float, sigma: float) -> NDArray[np.float64]:
    """Rényi divergence of one event at each of ORDERS."""
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)))
    values: NDArray[np.float64] = np.maximum(accountant.rdp, 0.0) + ROUNDING
    values.setflags(write=False)
    return values


def total(history: History) -> NDArray[np.float64]:
    """Rényi divergence of a whole history at each of ORDERS."""
    values = np.zeros(len(ORDERS))
    for q, sigma, count in bucket(history, _MOST_KINDS):
        values = values + count * curve(q, sigma)
    return values


def rdp_epsilon(history: History, delta: float, adjacency: Adjacency = "zero-out") -> float:
    """ε of a history at its best order."""
    return convert(total(history), delta, adjacency) if history else 0.0


def convert(values: NDArray[np.float64], delta: float, adjacency: Adjacency = "zero-out") -> float:
    """The least ε over the orders (Balle et al. 2020, the conversion the paper prints)."""
    if adjacency == "replace-one":
        orders, values = _replace_one(values)
    else:
        orders = np.array(ORDERS, dtype=float)
    return float(compute_epsilon(orders, values, delta)[0])


def _replace_one(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Replacing a record is zeroing it out and putting another in: two steps through the weak triangle inequality,
    D_α(P‖Q) ≤ (α−½)/(α−1)·D_2α(P‖Z) + D_2α−1(Z‖Q) (Mironov 2017, Prop. 11), with D_2α−1 ≤ D_2α."""
    orders = np.array(ORDERS[1:], dtype=float) / 2  # α = 1.5, 2, …: 2α is an order of the curve
    return orders, values[1:] * ((orders - 0.5) / (orders - 1) + 1)


def conversion_cost(orders: Sequence[int], delta: float) -> NDArray[np.float64]:
    """What (α, R)-RDP costs on top of R as (ε, δ)-DP: ln((α−1)/α) − (ln δ + ln α)/(α−1)."""
    alpha = np.array(orders, dtype=float)
    cost: NDArray[np.float64] = np.log1p(-1 / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1)
    return cost
