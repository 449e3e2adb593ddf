"""Semi-VRed: "Semi-Variance Reduction for Fair Federated Learning" (Malekmohammadi and Yu, 2023).

It minimises F + β·Σ p_i (F_i − F)₊² with F = Σ p_i F_i: only losses above the mean are a fault. Its gradient weighs a
client by p_i·(1 + 2β((F_i − F)₊ − Σ p_j (F_j − F)₊)), here never below 0. These weights can be known only when all
losses of the round are, so updates are kept until then.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.by_loss import ByLoss, Losses
from fedfdp.core import ranges


@dataclass(frozen=True, kw_only=True)
class SemiVRed(ByLoss):
    """Updates of clients above the mean loss count for more, in proportion to how far they are above it."""

    beta: Annotated[float, ranges.LAMBDA] = 1.0  # β, the price of losses above the mean; 0: FedAvg

    name: ClassVar[str] = "semivred"
    keeps_updates: ClassVar[bool] = True

    def fair_weight(self, loss: float, losses: Losses) -> float:
        return max(1 + 2 * self.beta * (max(loss - losses.mean, 0.0) - losses.excess), 0.0)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"beta": (0.5, 1.0, 2.0, 5.0), **super().grid()}
