"""Copies of a module, made before it sees a record: what its code keeps of records is not in them."""

import copy
from typing import Any

from torch import Tensor, nn

from fedfdp.core.errors import SettingError


def copied(model: nn.Module) -> nn.Module:
    """The module once more, with memory of its own."""
    return _copied(model, {})


def twin(model: nn.Module) -> nn.Module:
    """The module once more: its parameters lie in the same memory, all else is a copy."""
    shared: dict[int, Any] = {}
    for parameter in model.parameters():
        if type(parameter) is nn.Parameter:
            shared[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
    for parameter in model.parameters():
        if type(parameter) is nn.Parameter:
            vars(shared[id(parameter)]).update(copy.deepcopy(vars(parameter), shared))
    return _copied(model, shared)


def _copied(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    for layer in model.modules():
        for value in vars(layer).values():
            if isinstance(value, Tensor) and value.grad_fn is not None:  # made of parameters, and anew in every pass
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        why = f"cannot be copied: {error}".partition("\n")[0]
        raise SettingError("model", type(model).__name__, why, "keep locks, files and generators out of it") from None
