"""FedFV: "Federated Learning with Fair Averaging" (Wang et al., 2021), with the conflicts within a round.

Two updates are in conflict where their product is negative. Each update loses what it has against others, from the one
with the lowest loss to the one with the highest, so that nothing is left against the last. The sum is given the length
that the plain mean has. The paper can also remove conflicts with clients of the last τ rounds; here τ = 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from fedfdp.algorithms.by_loss import ByLoss, LossState, LossUpload
from fedfdp.algorithms.together import Together
from fedfdp.core import ranges
from fedfdp.fairness.weights import without_conflicts


@dataclass(frozen=True, kw_only=True)
class FedFV(ByLoss):
    """The mean of updates without their conflicts."""

    keep: Annotated[float, ranges.SHARE] = 0.1  # α, the part of the clients, with the highest losses, that stay whole

    name: ClassVar[str] = "fedfv"
    keeps_updates: ClassVar[bool] = True
    robust: ClassVar[tuple[str, ...]] = ("norm",)

    def aggregate(self, state: LossState, uploads: Iterable[LossUpload]) -> LossState:
        now, losses = state.losses.copy(), []

        def noted() -> Iterable[LossUpload]:
            for upload in uploads:
                losses.append(self.heard(state.losses, now, upload))
                yield upload

        together = Together.of(noted())
        if not together:
            return replace(state, round=state.round + 1)
        omega = without_conflicts(together.gram, np.array(losses), together.shares, self.keep)
        moved = together.added_to(state.weights, omega, length=together.length(together.shares))
        return replace(state, round=state.round + 1, weights=moved, losses=now)

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"keep": (0.0, 0.1, 0.3, 0.5), **super().grid()}
