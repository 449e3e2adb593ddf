"""What is kept of a call in which parameters meet the records, until the gradients at its output are known.

Calls of the layer rules are kept as such (rule.py). Here are the two ways for any other function: a parameter that is
broadcast over the records becomes one copy per record; and the call is differentiated again, record by record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from fedfdp.privacy.clipping.contributions import Contribution, Factors, Stored
from fedfdp.privacy.clipping.proof.calls import Arguments, Function, Key, Keywords, called, tensors_in
from fedfdp.privacy.clipping.proof.places import Reference, Rows


class Kept(Protocol):
    """A call whose gradients are worked out after the backward pass."""

    @property
    def edges(self) -> tuple[GradientEdge, ...]:
        """Where the gradients arrive that it needs."""

    @property
    def weights(self) -> list[Reference]:
        """The parameters, or what is made of them, whose gradients it gives."""

    @property
    def held(self) -> int:
        """Numbers that are in memory from this call until its gradients are summed."""

    @property
    def unchanged(self) -> bool:
        """Whether what was kept of the call is as it was."""

    def per_record(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor]:
        """The gradients, (B, *shape), from those at the edges."""

    def factors(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor | Factors]:
        """The same, as factors where they are a product."""

    def contributions(self, grads: Sequence[Tensor], records: int) -> list[Contribution]:
        """The same for parameters that no other call uses."""


class _Plain:
    """Gradients that are stored."""

    def per_record(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor]:
        raise NotImplementedError

    def factors(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor | Factors]:
        return dict(self.per_record(grads, records))

    def contributions(self, grads: Sequence[Tensor], records: int) -> list[Contribution]:
        return [Stored(str(name.name), rows) for name, rows in self.per_record(grads, records).items()]


@dataclass(frozen=True)
class Spread(_Plain):
    """A parameter that is broadcast over the records: the call got a copy for each, autograd gives their gradients."""

    weight: Reference
    shape: tuple[int, ...]  # of the parameter
    place: Rows  # of the records in the copies
    edge: GradientEdge
    size: int
    unchanged: bool = True

    @property
    def edges(self) -> tuple[GradientEdge, ...]:
        return (self.edge,)

    @property
    def weights(self) -> list[Reference]:
        return [self.weight]

    @property
    def held(self) -> int:
        return self.size

    def per_record(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor]:
        rows = grads[0]
        if self.place != (0, 1, 1):
            rows = self.place.first(rows, records).sum(self.place.dim + 1)
        return {self.weight: rows.reshape(records, *self.shape)}


def spread(weight: Tensor, like: tuple[int, ...], place: Rows) -> Tensor | None:
    """Copies of a parameter for the records, to be broadcast to this shape; None where it is not broadcast."""
    shape = (1,) * (len(like) - weight.dim()) + tuple(weight.shape)
    if len(shape) != len(like) or shape[place.dim] != 1:
        return None
    copies = [*shape]
    copies[place.dim] = like[place.dim]
    return weight.detach().view(shape).expand(copies).requires_grad_()


@dataclass(frozen=True)
class Retried(_Plain):
    """Any other call: differentiated once more by torch.func, record by record, each with its part of the arguments."""

    func: Function
    args: Arguments
    kwargs: Keywords
    pattern: Key  # with a Size for what grows with the records
    given: Mapping[Reference, Tensor]  # detached
    places: Mapping[Reference, Rows]  # of those with records
    weights: list[Reference]
    results: tuple[Rows, ...]
    edges: tuple[GradientEdge, ...]
    versions: tuple[int, ...]

    @property
    def held(self) -> int:
        return sum(tensor.numel() for tensor in self.given.values())

    @property
    def unchanged(self) -> bool:
        return self.versions == tuple(tensor._version for tensor in self.given.values())

    def per_record(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor]:
        names = list(self.places)
        parts = [self.places[name].first(self.given[name], records) for name in names]
        arriving = [place.first(grad, records) for place, grad in zip(self.results, grads, strict=True)]
        fixed = {name: tensor for name, tensor in self.given.items() if name not in self.places}

        def one(mine: list[Tensor], grad: list[Tensor]) -> tuple[Tensor, ...]:
            def result(*weights: Tensor) -> tuple[Tensor, ...]:
                values = {
                    **fixed,
                    **dict(zip(names, mine, strict=True)),
                    **dict(zip(self.weights, weights, strict=True)),
                }
                found = called(self.func, self.args, self.kwargs, self.pattern, 1, values)
                return tuple([tensor for tensor in tensors_in(found) if tensor.is_floating_point()])

            _, pulled = torch.func.vjp(result, *[fixed[name] for name in self.weights])
            back: tuple[Tensor, ...] = pulled(tuple(grad))
            return back

        rows = torch.vmap(one)(parts, arriving)
        return dict(zip(self.weights, rows, strict=True))
