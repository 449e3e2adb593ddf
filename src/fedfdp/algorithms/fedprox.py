"""FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020).

FedAvg whose local steps are pulled back towards the broadcast weights. The pull reads no record, so it is added after
the noise and is free. At the first step there is nothing to pull: with one local step per round FedProx is FedAvg.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedfdp.algorithms.fedavg import FedAvg
from fedfdp.algorithms.local_round import LocalRound, Released
from fedfdp.algorithms.record_types import Broadcast, ClientState
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Σ p_i w_i, where each w_i has gone down h_i(w) = F_i(w) + μ/2·‖w − w_t‖² (Eq. 2)."""

    mu: Annotated[float, ranges.PROXIMAL] = 0.01  # μ, how strongly local steps are pulled back to the broadcast weights

    name: ClassVar[str] = "fedprox"

    def direction(self, here: LocalRound[Broadcast, ClientState], released: Released) -> Weights:
        """∇h_i(w) = ∇F_i(w) + μ(w − w_t)"""
        if here.step == 0:
            return released.gradient
        return w.add(released.gradient, w.subtract(here.weights, here.broadcast.weights), scale=self.mu)
