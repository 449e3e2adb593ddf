"""What a layer rule is: how the gradients of an operation's parameters follow, record by record, from one pass.

A rule sees the input of a call and the gradient at its output. It never sees coefficients, the model or other calls.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fedfdp.privacy.clipping.contributions import STORE, Contribution, Stored
from fedfdp.privacy.clipping.products import Factors
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.proof.places import Place, Reference, Rows

Options = TypeVar("Options")  # what a rule keeps of a call's other arguments


class Bound(NamedTuple, Generic[Options]):
    """The arguments of a call, sorted: the data, the parameters, and what else the rule needs to know later."""

    input: Tensor
    weight: Tensor | None
    bias: Tensor | None
    options: Options


class Call(NamedTuple, Generic[Options]):
    """One call that a rule takes, as it is kept between the forward and the backward pass."""

    rule: "Rule[Options]"
    weight: Reference | None  # the parameter, or what is made of it; None where the call has none, or trains none
    bias: Reference | None
    input: Tensor
    options: Options
    rows: int  # how many independent rows the input holds, over all records
    outputs: int  # how many numbers the output holds
    version: int  # of the input: it must not be written to afterwards
    before: int  # how many of its rows precede the dimension of the records
    edge: GradientEdge  # where the output's gradient arrives

    @property
    def edges(self) -> tuple[GradientEdge, ...]:
        return (self.edge,)

    @property
    def weights(self) -> list[Reference]:
        """The parameters, or what is made of them."""
        return [reference for reference in (self.weight, self.bias) if reference is not None]

    @property
    def unchanged(self) -> bool:
        """Whether the input is as it was."""
        return self.input._version == self.version

    def per_record(self, grads: Sequence[Tensor], records: int) -> dict[Reference, Tensor]:
        return self.rule.per_record(self, grads[0], Layout(records, self.before))

    def factors(self, grads: Sequence[Tensor], records: int) -> "dict[Reference, Tensor | Factors]":
        return self.rule.factors(self, grads[0], Layout(records, self.before))

    def contributions(self, grads: Sequence[Tensor], records: int) -> list[Contribution]:
        return self.rule.contributions(self, grads[0], Layout(records, self.before))

    @property
    def held(self) -> int:
        """Numbers that are in memory from this call until its gradients are summed."""
        return self.input.numel() + self.outputs


class Layout(NamedTuple):
    """How the rows of a call belong to the records: they run over (before, records, after)."""

    records: int
    before: int

    def by_record(self, rows: Tensor, width: int) -> Tensor:
        """(B, L, width) from rows in this order: sequence-first and folded batches included."""
        if self.before == 1:
            return rows.reshape(self.records, -1, width)
        apart = rows.reshape(self.before, self.records, -1, width)
        return apart.transpose(0, 1).reshape(self.records, -1, width)


class Meet(NamedTuple):
    """What the tape tells a rule of a call."""

    known: Callable[[Tensor | None], Reference | None]  # which value made of parameters a tensor is; None: it is none
    place: Callable[[Tensor], Place]  # where a tensor keeps its records
    weights: frozenset[Reference]  # all such values in the call
    channels_last: bool
    made: Callable[[Tensor], None]  # a result of a function whose backward pass is the rule's own


class Rule(ABC, Generic[Options]):
    """The per-record gradients of one kind of call. layers/__init__.py says how to write one."""

    functions: ClassVar[tuple[Callable[..., Tensor], ...]]  # calls of these are taken

    @abstractmethod
    def bind(self, *args: Any, **kwargs: Any) -> Bound[Options]:
        """The arguments of a call, sorted; its signature is the function's. UnsupportedError: not such a call."""

    @abstractmethod
    def leading(self, input: Tensor, options: Options) -> int:
        """How many of the input's first dimensions its rows run over. The records must be in one of these."""

    @abstractmethod
    def per_record(self, call: Call[Options], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        """The gradients by parameter, (B, *shape), from the gradient at the output."""

    def factors(self, call: Call[Options], grad: Tensor, layout: Layout) -> dict[Reference, Tensor | Factors]:
        """The same, as factors of a product where they are one: those of several calls are put side by side."""
        return dict(self.per_record(call, grad, layout))

    def contributions(self, call: Call[Options], grad: Tensor, layout: Layout) -> list[Contribution]:
        """The same in the form that is cheapest to measure and to sum, for parameters that no other call uses."""
        return [Stored(str(name.name), rows) for name, rows in self.per_record(call, grad, layout).items()]

    def take(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], meet: Meet
    ) -> "tuple[object, Sequence[Call[Any]]]":
        """The result of a call, and what is kept of it. UnsupportedError: it is not such a call."""
        input, weight, bias, options = self.bind(*args, **kwargs)
        names = (meet.known(weight), meet.known(bias))
        if sorted(filter(None, names)) != sorted(meet.weights):
            raise UnsupportedError("a parameter is used as data")
        place, leading = meet.place(input), self.leading(input, options)
        if not isinstance(place, Rows) or place.dim >= leading:
            raise UnsupportedError("records are where one of its own dimensions is")
        # Leaves of their own, so that the output has a place in the graph.
        leaves = {id(t): t.detach().requires_grad_() for t in (weight, bias) if t is not None and meet.known(t)}
        given = [leaves.get(id(a), a) for a in args]
        output = self.run(func, meet.channels_last, *given, **{k: leaves.get(id(a), a) for k, a in kwargs.items()})
        call = Call(
            rule=self,
            weight=names[0],
            bias=names[1],
            input=input.detach(),
            options=options,
            rows=math.prod(input.shape[:leading]),
            outputs=output.numel(),
            version=input._version,
            before=math.prod(input.shape[: place.dim]) * place.before,
            edge=get_gradient_edge(output),
        )
        return output, [call]

    def run(self, func: Callable[..., Tensor], channels_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        """The call itself. With `channels_last` a rule may put the channels of images innermost if that is faster."""
        return func(*args, **kwargs)


def named(reference: Reference | None) -> str | None:
    """The name of a parameter; None where there is none."""
    return None if reference is None else str(reference.name)


def wide(rows: int, width: int, height: int) -> bool:
    """Whether to keep a gradient as factors: it would be too large to store, and few rows make it up."""
    return width * height > max(STORE, 2 * rows * (width + height))
