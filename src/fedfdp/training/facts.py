"""What is public about a run before it begins."""

import math
from dataclasses import dataclass

from torch import nn

from fedfdp.training.protocols import Members


@dataclass(frozen=True)
class PublicFacts:
    """What the rule may know: nothing of it depends on the content of a record."""

    sizes: tuple[int, ...]  # n_i of each client: records, or persons
    classes: int | None  # None for regression
    outputs: int  # values that the model gives for a record
    weights: int  # that are trained
    layers: int  # that are trained
    scaled: bool = False  # whether a regression's target is scaled from its declared range to [−1, 1]
    unit: str = "record"  # what is counted in `sizes`
    normalised: bool = False  # whether a record's inputs have mean 0 and variance 1, as features by name do
    first_loss: float = 0.0  # ln(classes) where a record has a class at every place; ln 2 where it has several labels

    @classmethod
    def of(cls, model: nn.Module, members: Members, *, scaled: bool = False, normalised: bool = False) -> "PublicFacts":
        """Of a model that is to be trained by these clients."""
        parts = [[p.numel() for p in part.parameters(recurse=False) if p.requires_grad] for part in model.modules()]
        sizes = tuple(size for size in members.sizes if size)
        weights, layers = sum(map(sum, parts)), sum(map(bool, parts))
        first = 0.0 if members.task.usual or not members.classes else math.log(members.classes)
        return cls(sizes, members.classes, members.outputs, weights, layers, scaled, members.unit, normalised, first)

    @property
    def total(self) -> int:
        """N, all records or persons."""
        return sum(self.sizes)

    @property
    def task(self) -> str:
        return "regression" if self.classes is None else "classification"

    @property
    def length(self) -> float:
        """The usual length of the inputs of a single trained layer, with a constant 1.

        Numbers that are spread over [−1, 1] have a variance of 1/3.
        """
        variance = 1.0 if self.normalised else 1 / 3
        return math.sqrt(1 + max(self.weights / self.outputs - 1, 0) * variance)
