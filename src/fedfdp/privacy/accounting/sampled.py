"""The privacy loss distribution of one Gaussian release of a Poisson sample: dp-accounting's, all of its grid at once.

dp-accounting inverts the loss at one point of the grid after the other, which takes most of its time. The formulas and
their order here are its own, so that the numbers are the same to the last bit.
"""

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from numpy.typing import NDArray

Grid = NDArray[np.float64]


def sampled_gaussian(q: float, sigma: float, interval: float) -> pld.PrivacyLossDistribution:
    """One record more or less in a sum to which noise is added, of records that are drawn with q below 1."""
    return pld.PrivacyLossDistribution(*(_pmf(q, sigma, interval, way) for way in ("REMOVE", "ADD")))


def _pmf(q: float, sigma: float, interval: float, way: str) -> pld_pmf.PLDPmf:
    loss = GaussianPrivacyLoss(sigma, sampling_prob=q, adjacency_type=AdjacencyType[way])
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = _deltas(loss, q, sigma, np.arange(low, high + 1) * interval, way)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _deltas(loss: GaussianPrivacyLoss, q: float, sigma: float, epsilons: Grid, way: str) -> Grid:
    """δ at each ε: where the loss exceeds ε, what one distribution has more than e^ε times the other."""
    edge = math.log1p(-q)  # of REMOVE no loss is below it, and of ADD none above its negative
    deltas = np.zeros_like(epsilons)
    if way == "REMOVE":
        inside = epsilons > edge
        deltas[~inside] = -np.expm1(epsilons[~inside])
        cut = -0.5 - _unsampled(q, epsilons[inside]) * sigma**2
    else:
        inside = epsilons < -edge
        cut = 1.0 + (-0.5 - -_unsampled(q, -epsilons[inside]) * sigma**2)
    lower = np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cut))
    deltas[inside] = loss.mu_upper_cdf(cut) - lower
    return np.clip(deltas, 0, 1)


def _unsampled(q: float, losses: Grid) -> Grid:
    """log(1 + (e^loss − 1)/q): the loss of the same release without sampling."""
    with np.errstate(divide="ignore", invalid="ignore"):  # at the edge
        scaled = losses + np.log(1 / q)
        found = scaled + np.log1p(-np.exp(np.log(-(1 - 1 / q)) - scaled))
    at_edge = np.abs(losses - math.log(1 - q)) <= 1e-9 * np.maximum(np.abs(losses), abs(math.log(1 - q)))
    return np.where(losses == 0, 0.0, np.where(at_edge, -math.inf, found))
