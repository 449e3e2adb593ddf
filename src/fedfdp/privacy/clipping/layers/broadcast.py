"""The rules for parameters added to or multiplied with data: learned positions, offsets, gains.

The parameter must be the same for every record: one that has the batch's own dimension is left to the fallback.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedfdp.privacy.clipping.layers.rules import PerSample, by_record
from fedfdp.privacy.clipping.tape import Call
from fedfdp.privacy.clipping.watch import UnsupportedError


class Shift(PerSample):
    """y = x + p with p broadcast over the records: ∂p = the output's gradient summed to p's shape, record by record."""

    functions: tuple[Callable[..., Tensor], ...] = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)

    def bind(self, input: Any, other: Any, alpha: float = 1) -> tuple[Tensor, Tensor, None, Any]:
        data, parameter = (other, input) if isinstance(input, nn.Parameter) else (input, other)
        if alpha != 1 or not isinstance(data, Tensor) or isinstance(data, nn.Parameter):
            raise UnsupportedError("a parameter is combined with something else than data")
        shape = (1,) * (data.dim() - parameter.dim()) + tuple(parameter.shape)
        if not shape[1:] or len(shape) > data.dim() or shape[0] != 1:
            raise UnsupportedError("a parameter has a dimension where the records are")
        return data, parameter, None, tuple(parameter.shape)

    def leading(self, input: Tensor, options: Any) -> int:
        return 1

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        grad = self.toward(call, grad)
        shape = (1,) * (grad.dim() - len(call.options)) + call.options
        spread = [i for i in range(1, grad.dim()) if shape[i] == 1]
        rows = grad.sum(spread, keepdim=True) if spread else grad
        width = torch.Size(shape).numel()
        return {str(call.weight): by_record(rows, batch, before, width).sum(1).view(batch, *call.options)}

    def toward(self, call: Call, grad: Tensor) -> Tensor:
        """The gradient at the parameter before it is summed to its shape."""
        return grad


class Gain(Shift):
    """y = x·p with p broadcast over the records: ∂p = the output's gradient times x, summed to p's shape."""

    functions: tuple[Callable[..., Tensor], ...] = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)

    def toward(self, call: Call, grad: Tensor) -> Tensor:
        return grad * call.input
