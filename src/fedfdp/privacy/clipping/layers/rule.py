"""What a layer rule is: how the gradients of an operation's parameters follow, record by record, from one pass.

A rule sees the input of a call and the gradient at its output. It never sees coefficients, the model or other calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor
from torch.autograd.graph import GradientEdge

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.proof.calls import Reference

Options = TypeVar("Options")  # what a rule keeps of a call's other arguments

STORE = 2**16  # weights up to this many are stored per record; larger ones stay products of factors


class Bound(NamedTuple, Generic[Options]):
    """The arguments of a call, sorted: the data, the parameters, and what else the rule needs to know later."""

    input: Tensor
    weight: Tensor | None
    bias: Tensor | None
    options: Options


class Call(NamedTuple, Generic[Options]):
    """One call that a rule takes, as it is kept between the forward and the backward pass."""

    rule: "Rule[Options]"
    weight: str | None  # the parameter's name; None where the call has none, or does not train it
    bias: str | None
    input: Tensor
    options: Options
    rows: int  # how many independent rows the input holds, over all records
    outputs: int  # how many numbers the output holds
    version: int  # of the input: it must not be written to afterwards
    source: Reference  # which value of the pass the input is
    edge: GradientEdge  # where the output's gradient arrives

    @property
    def names(self) -> list[str]:
        """The names of the trained parameters."""
        return [name for name in (self.weight, self.bias) if name is not None]

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
        apart = rows.reshape(self.before, self.records, -1, width)
        return apart.transpose(0, 1).reshape(self.records, -1, width)


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
    def per_record(self, call: Call[Options], grad: Tensor, layout: Layout) -> dict[str, Tensor]:
        """The gradients by parameter name, (B, *shape), from the gradient at the output."""

    def contributions(self, call: Call[Options], grad: Tensor, layout: Layout) -> list[Contribution]:
        """The same in the form that is cheapest to measure and to sum, for parameters that no other call uses."""
        return [Stored(name, rows) for name, rows in self.per_record(call, grad, layout).items()]

    def run(self, func: Callable[..., Tensor], channels_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        """The call itself. With `channels_last` a rule may put the channels of images innermost if that is faster."""
        return func(*args, **kwargs)


def wide(rows: int, width: int, height: int) -> bool:
    """Whether to keep a gradient as factors: it would be too large to store, and few rows make it up."""
    return width * height > max(STORE, 2 * rows * (width + height))
