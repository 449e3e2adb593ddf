"""TERM: "Tilted Empirical Risk Minimization" (Li et al., 2021), tilted over clients.

It minimises log(Σ p_i exp(t·F_i))/t: the mean loss for t → 0, the largest one for t → ∞. Its gradient is the mean of
the clients' gradients with weights p_i·exp(t·F_i), normalised.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.by_loss import ByLoss
from fedfdp.core import ranges


@dataclass(frozen=True, kw_only=True)
class TERM(ByLoss):
    """Updates weighted by p_i·exp(t·F_i)."""

    t: Annotated[float, ranges.TILT] = 1.0  # the tilt: how much more a client with a high loss counts; 0: not at all

    name: ClassVar[str] = "term"

    def log_weight(self, loss: float) -> float:
        return self.t * loss

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"t": (0.5, 1.0, 2.0, 5.0), **super().grid()}
