"""The rules for recurrent layers and cells: LSTM, GRU and the plain one, with any number of layers, both ways too.

A layer is two linear maps, of its input and of its own last output. Their outputs' gradients at all places come from
one pass back through time, and the rest is the rule for linear layers: no sum over time is made place by place.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from fedfdp.privacy.clipping.layers.linear import Linear
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Meet, Rule
from fedfdp.privacy.clipping.layers.through_time import GruCore, LstmCore, PlainCore
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.proof.places import Reference, Rows

Taken = tuple[object, list[Call[Any]]]  # the result, and what is kept
LINEAR = Linear()


class _Several(Rule[None]):
    """A rule that is made of calls of the linear rule."""

    def bind(self, *args: Any, **kwargs: Any) -> Bound[None]:
        raise UnsupportedError("taken as a whole")

    def leading(self, input: Tensor, options: None) -> int:
        return 1

    def per_record(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        raise UnsupportedError("taken as a whole")


def _linear(meet: Meet, input: Tensor, weight: Tensor, bias: Tensor | None, edge: GradientEdge, size: int) -> Call[Any]:
    """One of the two maps as a call of the linear rule; rows are in the order (records, places)."""
    rows = input.shape[0] * (input.shape[1] if input.dim() == 3 else 1)
    detached = input.detach()
    names = (meet.known(weight), meet.known(bias))
    return Call(LINEAR, *names, detached, None, rows, size, detached._version, 1, edge)


def _mapped(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, GradientEdge]:
    """The output of a linear map that is not trained here, and where its gradient arrives."""
    output = functional.linear(input, weight.detach(), None if bias is None else bias.detach())
    if not output.requires_grad:
        output.requires_grad_()
    return output, get_gradient_edge(output)


class Recurrent(_Several):
    """One recurrent layer in one direction; in_steps.py takes several apart."""

    functions: ClassVar[tuple[Callable[..., Any], ...]] = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)

    def take(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], meet: Meet
    ) -> tuple[object, list[Call[Any]]]:
        if kwargs or len(args) != 9 or type(args[2]) not in (list, tuple) or type(args[3]) is not bool:
            raise UnsupportedError("packed sequences")
        x, state, weights, biased, layers, _, _, both, batch_first = args
        if layers != 1 or both or len(weights) != (4 if biased else 2) or x.dim() != 3:
            raise UnsupportedError("several layers, projections, or no dimension for records")
        if meet.place(x) != Rows(0 if batch_first else 1, 1, 1):
            raise UnsupportedError("records are in the place of time")
        if {meet.known(w) for w in weights} - {None} != meet.weights:
            raise UnsupportedError("a parameter is used as data")
        states = tuple(s[0] for s in state) if isinstance(state, (tuple, list)) else (state[0],)
        (into, again, *biases), h = weights, x if batch_first else x.transpose(0, 1)
        one, two = biases or (None, None)
        mapped, edge = _mapped(h, into, one)
        fixed = again.detach(), mapped.new_zeros(mapped.shape[2]) if two is None else two.detach()
        other = edge
        if func == torch.lstm:
            output, *ends = LstmCore.apply(mapped, *fixed, *states)  # type: ignore[no-untyped-call]
        elif func == torch.gru:
            mark = mapped.new_zeros(()).expand(mapped.shape).requires_grad_()
            output, *ends = GruCore.apply(mapped, mark, *fixed, *states)  # type: ignore[no-untyped-call]
            other = get_gradient_edge(mark)
        else:
            output, *ends = PlainCore.apply(mapped, *fixed, *states, func == torch.rnn_tanh)  # type: ignore[no-untyped-call]
        meet.made(output)
        before = torch.cat([states[0][:, None], output[:, :-1]], 1)
        calls = [_linear(meet, h, into, one, edge, mapped.numel()), _linear(meet, before, again, two, other, 0)]
        return (output if batch_first else output.transpose(0, 1), *(end[None] for end in ends)), calls


class Cell(_Several):
    """A recurrent cell: one place at a time, so that a layer of them is many calls on the same weights."""

    functions: ClassVar[tuple[Callable[..., Any], ...]] = (
        *(torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell),
    )

    def take(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], meet: Meet
    ) -> tuple[object, list[Call[Any]]]:
        if kwargs or len(args) not in (4, 6):
            raise UnsupportedError("a cell with named arguments")
        x, state, into, again, *biases = args
        one, two = biases or (None, None)
        h = state[0] if isinstance(state, (tuple, list)) else state
        if x.dim() != 2 or meet.place(x) != Rows(0, 1, 1) or meet.place(h) != Rows(0, 1, 1):
            raise UnsupportedError("records are elsewhere than in the first dimension")
        if {meet.known(w) for w in (into, again, one, two)} - {None} != meet.weights:
            raise UnsupportedError("a parameter is used as data")
        (first, edge), (second, other) = _mapped(x, into, one), _mapped(h, again, two)
        calls = [_linear(meet, x, into, one, edge, first.numel()), _linear(meet, h, again, two, other, second.numel())]
        if func == torch.lstm_cell:
            i, f, g, o = (first + second).chunk(4, 1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return (o.sigmoid() * c.tanh(), c), calls
        if func == torch.gru_cell:
            r, z, n = first.chunk(3, 1)
            hr, hz, hn = second.chunk(3, 1)
            new = (n + (r + hr).sigmoid() * hn).tanh()
            return new + (z + hz).sigmoid() * (h - new), calls
        total = first + second
        return total.tanh() if func == torch.rnn_tanh_cell else total.relu(), calls
