"""The losses that nodes released under privacy, smoothed over rounds, and how much of their spread is the noise's own.

For display where nobody lets the model be judged on raw records. It reads uploads alone.
"""

from dataclasses import dataclass, field
from typing import Any

from fedfdp.algorithms.base import Algorithm
from fedfdp.fairness.bounds import mean_bound
from fedfdp.privacy.dpsgd import DPSGD

SMOOTHING = 0.9


@dataclass
class ReleasedLosses:
    """F̄_i of each client that has released one, and the variance of the noise in it."""

    algorithm: Algorithm
    privacy: DPSGD | None
    means: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    def note(self, upload: Any) -> None:
        """An upload that was used; without a loss in it there is nothing to note."""
        loss, client = getattr(upload, "loss", None), upload.client
        if not isinstance(loss, float):
            return
        variance = self._variance(client, upload.records)
        keep, add = (SMOOTHING, 1 - SMOOTHING) if client in self.means else (0.0, 1.0)
        self.means[client] = keep * self.means.get(client, 0.0) + add * loss
        self.noise[client] = keep**2 * self.noise.get(client, 0.0) + add**2 * variance
        self._last[client] = loss

    def _variance(self, client: str, records: int) -> float:
        """(σ_l·C_l/(q·n_i))², the noise of one release."""
        if self.privacy is None:
            return 0.0
        return float(self.privacy.sigma_loss * self._bound(client) / (self.privacy.q * records)) ** 2

    def _bound(self, client: str) -> float:
        """C_l as far as uploads tell it. A tracked quantile does not: 0 then, so that nothing is taken off."""
        method: Any = self.algorithm
        rule = getattr(method, "loss_bound", "fixed")
        if rule == "mean" and client in self._last:
            return mean_bound(self._last[client], floor=method.loss_floor, ceiling=method.loss_ceiling)
        return 0.0 if rule == "quantile" else float(getattr(method, "loss_clip", 0.0))
