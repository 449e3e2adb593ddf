"""The weighted mean of updates, also of models of different width."""

from math import exp

import torch

from fedfdp.core import weights as w
from fedfdp.core.records import Weights


class Mean:
    """Σ ω_i u_i/Σ ω_i, one update at a time, so that none has to be kept.

    An update may be of a narrower model, its tensors being leading slices: then each number is averaged over the
    updates that have it, and stays where none has.
    """

    def __init__(self, like: Weights) -> None:
        self.total, self.weight, self.exponent = w.zeros_like(like), 0.0, 0.0
        self.divisors: Weights | None = None  # of each number, once a narrower update has come

    def add(self, update: Weights, weight: float, *, divisor: float | None = None, exponent: float = 0.0) -> None:
        """One more update; `divisor` where the sum is not divided by the weights themselves.

        The weight is meant times e^exponent, however large that is: the sum is kept in units of the largest so far.
        """
        if exponent != self.exponent:
            if self.weight == 0 or exponent > self.exponent:
                w.multiply_(self.total, shrink := exp(min(self.exponent - exponent, 0.0)))
                self.weight, self.exponent = self.weight * shrink, exponent
                if self.divisors is not None:
                    w.multiply_(self.divisors, shrink)
            weight *= exp(exponent - self.exponent)
        share = weight if divisor is None else divisor
        alike = isinstance(update, Weights) and update.shapes == self.total.shapes
        narrow = not alike and any(tensor.shape != self.total[name].shape for name, tensor in update.items())
        if narrow and self.divisors is None:
            self.divisors = w.each(lambda vector: torch.full_like(vector, self.weight), self.total)
        if self.divisors is None:
            w.add_(self.total, update, scale=weight)
        else:
            for name, tensor in update.items():
                part = tuple(slice(size) for size in tensor.shape)
                self.total[name][part].add_(tensor, alpha=weight)
                self.divisors[name][part].add_(share)
        self.weight += share

    def added_to(self, weights: Weights) -> Weights:
        """The weights moved by the mean; unmoved where nothing was added."""
        if self.divisors is not None:
            mean = w.each(lambda total, by: torch.where(by > 0, total / by, 0.0), self.total, self.divisors)
            return w.add(weights, mean)
        return w.add(weights, self.total, scale=1 / self.weight) if self.weight else weights
