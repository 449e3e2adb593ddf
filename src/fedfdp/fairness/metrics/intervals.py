"""How much a share of few records says: 75 % of 19 records may be anything from 51 % to 88 %."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95  # of every interval that is shown
_Z = 1.959963984540054  # the normal quantile at (1 + LEVEL)/2


def wilson(share: ArrayLike, records: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's 95 % interval of a share that was counted in so many records; NaN where there are none.

    It stays within [0, 1] and is right for few records too, where share ± 2 standard errors is not.
    """
    p, n = np.asarray(share, dtype=np.float64), np.asarray(records, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        low, high = np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)
