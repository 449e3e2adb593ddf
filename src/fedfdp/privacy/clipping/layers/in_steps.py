"""Functions that are re-run as the series of calls they are made of, so that each of these meets its own rule."""

import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.nn import functional

# Attention is one function to a TorchFunctionMode. Re-run with `has_torch_function` patched to False, each of its steps
# is a call of its own.
_attention = types.FunctionType(
    functional.multi_head_attention_forward.__code__,
    {**vars(functional), "has_torch_function": lambda tensors: False},
    argdefs=functional.multi_head_attention_forward.__defaults__,
)


def _rows_of(tensor: Tensor) -> Iterator[Tensor]:
    if not tensor.dim():
        raise TypeError("iteration over a 0-d tensor")  # as torch says it
    return iter(tensor.unbind(0))


IN_STEPS: dict[object, Callable[..., Any]] = {
    functional.multi_head_attention_forward: _attention,
    Tensor.__iter__: _rows_of,
}
