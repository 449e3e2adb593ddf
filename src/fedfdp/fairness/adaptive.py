"""A λ_s that needs no tuning. It is computed from released losses alone (post-processing), so it costs no privacy.

λ_s = a/F: what counts is the gap between a client's loss and the mean, relative to the mean, so the scale of the loss
does not matter. The strength a grows while the released losses are spread out, and shrinks while the mean loss rises.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STEP = 1.02  # factor by which the strength changes in a round
SPREAD = 0.1  # the losses are spread out where their standard deviation over their mean is above this
SUFFERING = 1.05  # the mean loss has risen where it is above its lowest so far by this factor
WEAKEST, STRONGEST = 0.25, 4.0


@dataclass(frozen=True)
class Drive:
    """How strongly the server favours badly served clients, and the lowest mean loss so far."""

    strength: float = 1.0
    lowest: float = float("inf")

    def lam(self, mean_loss: float) -> float:
        """λ_s for this mean loss."""
        return self.strength / max(mean_loss, 1e-6)

    def after(self, losses: Mapping[str, float], mean_loss: float) -> "Drive":
        """The drive of the next round, from the smoothed released losses of all clients seen so far."""
        lowest = min(self.lowest, mean_loss)
        if mean_loss > SUFFERING * lowest:
            return Drive(max(self.strength / STEP, WEAKEST), lowest)
        spread = (sum((loss - mean_loss) ** 2 for loss in losses.values()) / max(len(losses), 1)) ** 0.5
        raised = self.strength * STEP if spread > SPREAD * mean_loss else self.strength
        return Drive(min(raised, STRONGEST), lowest)
