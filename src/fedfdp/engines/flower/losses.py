"""The losses that nodes released under privacy, smoothed over rounds, and how much of their spread is the noise's own.

For display where nobody lets the model be judged on raw records. It reads uploads alone.
"""

from dataclasses import dataclass, field

from fedfdp.algorithms.base import Algorithm, Upload
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

    def note(self, upload: Upload) -> None:
        """An upload that was used; without a loss in it there is nothing to note."""
        loss, client = self.algorithm.loss_of(upload), upload.client
        if loss is None:
            return
        variance = self._variance(client, upload.records)
        keep, add = (SMOOTHING, 1 - SMOOTHING) if client in self.means else (0.0, 1.0)
        self.means[client] = keep * self.means.get(client, 0.0) + add * loss
        self.noise[client] = keep**2 * self.noise.get(client, 0.0) + add**2 * variance
        self._last[client] = loss

    def _variance(self, client: str, records: int) -> float:
        """(σ_l·C_l/(q·n_i))², the noise of one release. Where uploads do not tell C_l it is 0: nothing is taken off."""
        if self.privacy is None:
            return 0.0
        bound = self.algorithm.loss_bound_after(self._last.get(client))
        return float(self.privacy.sigma_loss * bound / (self.privacy.q * records)) ** 2
