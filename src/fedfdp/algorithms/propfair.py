"""PropFair: "Proportional Fairness in Federated Learning" (Zhang et al., 2022).

It maximises Σ p_i log(M − F_i), M being a loss that is worse than any: nobody's gain in per cent is worth less than
another's. Its gradient weighs a client by p_i/(M − F_i). Below M − F_i = ε the logarithm goes on as a straight line, so
that the weight stays at 1/ε.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.by_loss import ByLoss, Losses
from fedfdp.core import ranges


@dataclass(frozen=True, kw_only=True)
class PropFair(ByLoss):
    """Updates weighted by p_i/max(M − F_i, ε)."""

    baseline: Annotated[float, ranges.LOSS_BOUND] = 5.0  # M, above `loss_clip`; the nearer, the fairer
    least_gap: Annotated[float, ranges.LOSS_BOUND] = 0.2  # ε, the least that M − F_i counts as

    name: ClassVar[str] = "propfair"

    def __post_init__(self) -> None:
        super().__post_init__()
        above = f"above loss_clip, which is {self.loss_clip:g}"
        self.require(self.baseline > self.loss_clip, "baseline", above, "twice loss_clip is usual")

    def fair_weight(self, loss: float, losses: Losses) -> float:
        return 1 / max(self.baseline - loss, self.least_gap)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"baseline": tuple(times * self.loss_clip for times in (1.2, 2.0, 4.0)), **super().grid()}
