"""FedFV: "Federated Learning with Fair Averaging" (Wang et al., 2021).

Two updates are in conflict where their product is negative. Each update loses what it has against others, from the one
with the lowest loss to the one with the highest, so that nothing is left against the last. Then the sum loses what it
has against clients that are away: the last updates of those that were there in one of the last τ rounds stand for what
they would send now, the oldest round first. At the end it is given the length that the plain mean has.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from fedfdp.algorithms.by_loss import ByLoss, LossState, LossUpload
from fedfdp.algorithms.together import Together
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.fairness.weights import without_conflicts

ROUNDING = 1e-6  # a part of a sum that is no more than this is what rounding left: it has no direction


@dataclass(frozen=True)
class Sent:
    """A client's last update, as released, and its round."""

    round: int
    update: Weights


@dataclass(frozen=True)
class FVState(LossState):
    sent: dict[str, Sent] = field(default_factory=dict)  # of the last τ rounds


@dataclass(frozen=True, kw_only=True)
class FedFV(ByLoss):
    """The mean of updates without their conflicts."""

    keep: Annotated[float, ranges.SHARE] = 0.1  # α, the part of the clients, with the highest losses, that stay whole
    past: Annotated[int, ranges.PAST] = 0  # τ, for how many rounds a client's last update counts while it is away

    name: ClassVar[str] = "fedfv"
    State: ClassVar[type[FVState]] = FVState
    keeps_updates: ClassVar[bool] = True
    robust: ClassVar[tuple[str, ...]] = ("norm",)

    def aggregate(self, state: FVState, uploads: Iterable[LossUpload]) -> FVState:  # type: ignore[override]
        now, losses, names = state.losses.copy(), [], []

        def noted() -> Iterable[LossUpload]:
            for upload in uploads:
                losses.append(self.heard(state.losses, now, upload))
                names.append(upload.client)
                yield upload

        together = Together.of(noted())
        if not together:
            return replace(state, round=state.round + 1)
        omega = without_conflicts(together.gram, np.array(losses), together.shares, self.keep)
        length = together.length(together.shares)
        if not self.past:
            moved = together.added_to(state.weights, omega, length=length)
            return replace(state, round=state.round + 1, weights=moved, losses=now)
        before = together.mixture(state.weights, omega)
        total = self.without_absent(before, state, names)
        left = math.sqrt(w.squared_norm(total))
        nothing = left <= ROUNDING * math.sqrt(w.squared_norm(before))
        moved = state.weights if nothing else w.add(state.weights, total, scale=length / left)
        sent = {name: one for name, one in state.sent.items() if one.round > state.round - self.past}
        sent |= {name: Sent(state.round, update) for name, update in zip(names, together.updates, strict=True)}
        return replace(state, round=state.round + 1, weights=moved, losses=now, sent=sent)

    def without_absent(self, total: Weights, state: FVState, present: list[str]) -> Weights:
        """The sum without what it has against clients that were last there 1 to τ rounds ago, round by round."""
        away = {name: one for name, one in sorted(state.sent.items()) if name not in present}
        for round in range(state.round - self.past, state.round):
            against = w.zeros_like(total)
            for one in away.values():
                if one.round == round and w.product(total, one.update) < 0:
                    w.add_(against, one.update)
            if (product := w.product(total, against)) < 0:
                total = w.add(total, against, scale=-product / w.squared_norm(against))
        return total

    def grid(self) -> dict[str, tuple[float, ...]]:
        return {"keep": (0.0, 0.1, 0.3, 0.5), **super().grid()}
