"""FedMGDA+: "Federated Learning Meets Multi-Objective Optimization" (Hu et al., 2020).

The direction is the shortest of all mixtures of the normalised updates whose weights λ are within ε of p: no client
with a large update, or with many records, outvotes the others, and with ε = 1 nobody's loss rises. It needs no losses.
The length is that of a weighted mean of the updates, Σ ω_i u_i with ω_i = λ_i/‖u_i‖ normalised: the paper's is a step
size of its own, which `server.lr` is here.

Under privacy ‖u_i‖² is mostly noise. What noise adds on average is public, and is taken off.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.record_types import Broadcast, ClientState, Population, ServerState, Upload
from fedfdp.algorithms.together import Together
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.fairness.weights import least_norm
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class MGDAState(ServerState):
    noise: float  # what noise adds to ‖u_i‖² on average, times (n_i/η)²; 0 without privacy


@dataclass(frozen=True, kw_only=True)
class FedMGDA(Algorithm[MGDAState, Broadcast, Upload, ClientState]):
    """The least-norm mixture of normalised updates, its weights near p."""

    distance: Annotated[float, ranges.SHARE] = 0.1  # ε, how far λ_i may be from p_i; 0: λ is p, 1: any mixture

    name: ClassVar[str] = "fedmgda"
    keeps_updates: ClassVar[bool] = True
    robust: ClassVar[tuple[str, ...]] = ("norm",)

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> MGDAState:
        noise = 0.0
        if privacy is not None:
            steps, scale = self.private_steps(None, privacy), privacy.noise * privacy.clip / privacy.q
            noise = steps * w.size(weights) * scale**2
        return MGDAState(0, weights, population, noise)

    def aggregate(self, state: MGDAState, uploads: Iterable[Upload]) -> MGDAState:
        together = Together.of(uploads)
        if not together:
            return replace(state, round=state.round + 1)
        noise = state.noise * (self.step_size(state.round) / together.records) ** 2
        lengths = np.sqrt(together.true_squares(noise, w.size(state.weights)))
        gram = together.gram / np.outer(lengths, lengths)
        np.fill_diagonal(gram, 1.0)
        low, high = (np.clip(together.shares + side * self.distance, 0.0, 1.0) for side in (-1, 1))
        omega = least_norm(gram, low, high) / lengths
        moved = together.added_to(state.weights, omega / omega.sum())
        return replace(state, round=state.round + 1, weights=moved)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"distance": (0.05, 0.1, 0.5, 1.0), **super().grid()}
