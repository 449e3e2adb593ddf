"""What the server may add to a method: a robust mean, an optimiser, averaged weights. It costs no privacy."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from fedfdp.core import weights as w
from fedfdp.core.errors import require
from fedfdp.core.kinds import check_kinds
from fedfdp.core.records import Weights
from fedfdp.training.robust import Rule


@dataclass(frozen=True)
class ServerMemory:
    """Moments of the aggregated updates, and the running average of the weights."""

    steps: int = 0
    first: Weights = field(default_factory=Weights)
    second: Weights = field(default_factory=Weights)
    average: Weights = field(default_factory=Weights)


@dataclass(frozen=True)
class ServerOptimizer:
    """An optimiser of the aggregated update (Reddi et al., 2021), and an exponential average as the released model."""

    optimizer: Literal["none", "momentum", "adam"] = None  # type: ignore[assignment]  # none: the weights as they are
    lr: float = 1.0  # step size of the optimiser
    momentum: float = 0.9  # β₁ of the first moment
    beta2: float = 0.99  # β₂ of adam's second moment
    tau: float = 1e-3  # what adam adds to the root of the second moment
    average: float = None  # type: ignore[assignment]  # decay of the average that is released; 0: the last weights
    robust: Rule | None = None  # median, trimmed or norm instead of a mean that one poisoned client can move anywhere
    trim: float | None = None  # of trimmed: the part of the clients left out at either end; None: 0.2
    norm: float | None = None  # of norm: the longest update that counts in full; None: the median of the round's

    def __post_init__(self) -> None:
        check_kinds(self, "server")
        require(self.lr > 0, "server.lr", self.lr, "a step size above 0", "1 takes the clients' mean as it is")
        require(self.tau > 0, "server.tau", self.tau, "above 0", "1e-3 is usual")
        for name in ("momentum", "beta2", "average"):
            value = getattr(self, name)
            fits = value is None or 0 <= value < 1
            require(fits, f"server.{name}", value, "at least 0, below 1", "0 switches it off")
        fits = self.trim is None or (self.robust == "trimmed" and 0 < self.trim < 0.5)
        require(fits, "server.trim", self.trim, 'above 0, below 0.5, with robust = "trimmed"', "0.2 is usual")
        fits = self.norm is None or (self.robust == "norm" and 0 < self.norm < float("inf"))
        require(fits, "server.norm", self.norm, 'above 0, with robust = "norm"', "leave it out for the median length")

    def step(self, before: Weights, aggregated: Weights, memory: ServerMemory) -> tuple[Weights, ServerMemory]:
        """The new global weights, from the old ones and what the method made of the clients' updates."""
        first, second, after = memory.first, memory.second, aggregated
        if self.optimizer in ("momentum", "adam"):
            delta = w.subtract(aggregated, before)
            first = first or w.zeros_like(before)
            if self.optimizer == "momentum":
                first = w.add(delta, first, scale=self.momentum)
                after = w.add(before, first, scale=self.lr)
            else:
                second = second or w.zeros_like(before)
                first = w.each(lambda d, m: torch.lerp(d, m, self.momentum), delta, first)
                second = w.each(lambda d, v: torch.lerp(d.square(), v, self.beta2), delta, second)
                after = w.each(lambda t, m, v: t + self.lr * m / (v.sqrt() + self.tau), before, first, second)
        average = memory.average
        if self.average:
            if average:
                average = w.each(lambda t, mean: torch.lerp(t, mean, self.average), after, average)
            else:
                average = w.multiply(after, 1 - self.average)
        return after, ServerMemory(memory.steps + 1, first, second, average)

    def released(self, current: Weights, memory: ServerMemory) -> Weights:
        """The model that is handed out: the average, corrected for having started at zero, or the current weights."""
        if not self.average or not memory.steps:
            return current
        return w.multiply(memory.average, 1 / (1 - self.average**memory.steps))
