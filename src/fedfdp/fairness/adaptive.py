"""A λ_s that needs no tuning, driven by released losses alone: post-processing, so it costs no privacy.

λ_s = a/F: a gap between a client's loss and the mean counts by its size relative to the mean, on any scale of loss. The
strength a rises while the released losses stay spread out, and falls while the mean loss suffers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STEP = 1.02  # by which the strength changes in a round
SPREAD = 0.1  # standard deviation of the clients' losses over their mean, above which they count as spread out
SUFFERING = 1.05  # mean loss over its lowest so far, above which it suffers
WEAKEST, STRONGEST = 0.25, 4.0


@dataclass(frozen=True)
class Drive:
    """How strongly the server leans towards badly served clients, and the lowest mean loss it has seen."""

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
