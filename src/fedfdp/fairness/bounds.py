"""How a clipping bound is updated. It uses released values alone (post-processing), so it costs no privacy."""

import math


def mean_bound(released_loss: float, *, floor: float, ceiling: float) -> float:
    """C_l ← F̃_i, the paper's rule (Eq. 16), kept within [floor, ceiling]: F̃_i may be negative.

    It collapses: E[min(F, C_l)] < C_l near the mean, so the bound shrinks round after round down to its floor.
    """
    return min(max(released_loss, floor), ceiling)


def quantile_bound(
    bound: float, released_fraction: float, *, quantile: float, step: float, floor: float, ceiling: float
) -> float:
    """Geometric steps towards the bound that `quantile` of the values lie within (Andrew et al., 2021)."""
    fraction = min(max(released_fraction, 0.0), 1.0)
    return min(max(bound * math.exp(-step * (fraction - quantile)), floor), ceiling)
