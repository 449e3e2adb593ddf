"""The rules for parameters that are added to data or multiplied with it: learned positions, offsets, gains.

The parameter must be the same for every record. A model in which it has the batch's dimension goes record by record.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule
from fedfdp.privacy.clipping.proof.calls import UnsupportedError

ParameterShape = tuple[int, ...]


class Shift(Rule[ParameterShape]):
    """y = x + p with p broadcast over the records: ∂p = the output's gradient summed to p's shape, record by record."""

    functions: ClassVar[tuple[Callable[..., Tensor], ...]] = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)

    def bind(self, input: object, other: object, alpha: float = 1) -> Bound[ParameterShape]:
        data, parameter = (other, input) if isinstance(input, nn.Parameter) else (input, other)
        if alpha != 1 or isinstance(data, nn.Parameter) or not isinstance(data, Tensor):
            raise UnsupportedError("a parameter is combined with something else than data")
        if not isinstance(parameter, Tensor):
            raise UnsupportedError("data is combined with something else than a parameter")
        shape = (1,) * (data.dim() - parameter.dim()) + tuple(parameter.shape)
        if not shape[1:] or len(shape) > data.dim() or shape[0] != 1:
            raise UnsupportedError("a parameter has a dimension where the records are")
        return Bound(data, parameter, None, tuple(parameter.shape))

    def leading(self, input: Tensor, options: ParameterShape) -> int:
        return 1

    def per_record(self, call: Call[ParameterShape], grad: Tensor, layout: Layout) -> dict[str, Tensor]:
        grad = self.toward(call, grad)
        shape = (1,) * (grad.dim() - len(call.options)) + call.options
        spread = [i for i in range(1, grad.dim()) if shape[i] == 1]
        rows = grad.sum(spread, keepdim=True) if spread else grad
        width = torch.Size(shape).numel()
        return {str(call.weight): layout.by_record(rows, width).sum(1).view(layout.records, *call.options)}

    def toward(self, call: Call[ParameterShape], grad: Tensor) -> Tensor:
        """The gradient at the parameter before it is summed to its shape."""
        return grad


class Gain(Shift):
    """y = x·p with p broadcast over the records: ∂p = the output's gradient times x, summed to p's shape."""

    functions: ClassVar[tuple[Callable[..., Tensor], ...]] = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)

    def toward(self, call: Call[ParameterShape], grad: Tensor) -> Tensor:
        return grad * call.input
