"""A mode of torch in which nothing is drawn: dropout gives its input and random numbers are constants.

Passes can then be compared with each other. Never touches the model.
"""

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.layers.in_steps import IN_STEPS
from fedfdp.privacy.clipping.proof.calls import Arguments, Function, Keywords

_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
}
_DRAWS = {
    *(torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal, torch.bernoulli),
    *(Tensor.bernoulli, Tensor.bernoulli_, Tensor.normal_, Tensor.uniform_, Tensor.exponential_),
}
_RECURRENT: set[Function] = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
_ATTENTION: set[Function] = {functional.scaled_dot_product_attention}
_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")  # of the above, in its order


class Deterministic(TorchFunctionMode):
    """Nothing is drawn in calls made within it."""

    def __torch_function__(
        self, func: Function, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in IN_STEPS:
            with self:
                return IN_STEPS[func](*args, **kwargs)
        if func in _DROPOUTS:
            return _undropped(func, args, kwargs)
        if func in _RECURRENT and len(args) == 9 and not kwargs:
            at = 5 if type(args[3]) is bool else 6  # a packed sequence has its dropout one place later
            args = (*args[:at], 0.0, *args[at + 1 :])
        if func in _ATTENTION:
            return func(**{**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs, "dropout_p": 0.0})
        result = func(*args, **kwargs)
        if func in _DRAWS and isinstance(result, Tensor) and result.is_floating_point():
            return result.fill_(0.5)
        return result


def _undropped(func: Function, args: Arguments, kwargs: Keywords) -> Tensor:
    """Dropout's input, unchanged; a copy if dropout would return a new tensor."""
    given = args[0]
    assert isinstance(given, Tensor)
    before, version = given.clone(), given._version
    if id(func(*args, **kwargs)) != id(given):
        return before
    if given._version != version:  # in place
        given.copy_(before)
    return given
