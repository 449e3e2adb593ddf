"""Calls that only rearrange the numbers of one parameter: what is known of the gradient behind them is known before.

They are told by their names and shapes, never by numbers. Any other call on parameters alone is left to autograd.
"""

from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import TracedCall, name_of, tensors_in

SAME, SWAPPED, LOOKED_UP = "same", "swapped", "looked up"
STEPS = (SAME, SWAPPED, LOOKED_UP)

_IN_ORDER = frozenset(
    {
        *("alias", "bfloat16", "clone", "contiguous", "cpu", "double", "flatten", "float", "half", "ravel", "reshape"),
        *("reshape_as", "squeeze", "to", "type", "type_as", "unflatten", "unsqueeze", "view", "view_as"),
    }
)
_PLUS_A_NUMBER = frozenset(("__add__", "__radd__", "add"))
_ROWS_FOR_COLUMNS = frozenset(("T", "mT", "permute", "swapaxes", "swapdims", "t", "transpose"))


def step_of(call: TracedCall) -> str:
    """How a call on parameters alone rearranges the numbers of the first of its arguments that is a parameter's."""
    name = name_of(call.func)
    given = list(tensors_in((call.args, call.kwargs)))
    if call.changed or len(call.made) != 1 or not given:
        return ""
    (shape,), before = call.shapes, given[0].shape
    if name == "embedding" and len(given) == 2 and _usual_lookup(call):
        return LOOKED_UP
    if name == "__getitem__" and len(given) == 2 and _is_index(call.args[1]) and given[0].dim() == 2:
        return LOOKED_UP
    if len(given) != 1 or not given[0].is_floating_point():
        return ""
    if name in _IN_ORDER and given[0].numel() == _numbers(shape):
        return SAME
    if name in _PLUS_A_NUMBER and len(call.args) == 2 and not call.kwargs and shape == tuple(before):
        return SAME
    if name in _ROWS_FOR_COLUMNS and len(before) == 2 and shape == (before[1], before[0]) and _exchanges(call, name):
        return SWAPPED
    return ""


def _exchanges(call: TracedCall, name: str) -> bool:
    """Whether the two dimensions change places: for a square matrix its shape does not say."""
    if name in ("T", "mT", "t"):
        return True
    dims = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], (tuple, list)) else call.args[1:]
    whole = [dim % 2 for dim in dims if isinstance(dim, int)]
    return len(whole) == 2 and not call.kwargs and (whole == [1, 0] if name == "permute" else whole[0] != whole[1])


def _usual_lookup(call: TracedCall) -> bool:
    """An embedding of whole numbers in a table, without a row that is not trained."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    weight = given.get("weight")
    plain = given.get("max_norm") is None and not given.get("scale_grad_by_freq")
    return plain and given.get("padding_idx") is None and isinstance(weight, Tensor) and weight.dim() == 2


def _is_index(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype.itemsize == 8


def _numbers(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
