"""What must hold of a call before a trial of it on random numbers counts as a proof.

A trial has only a few records. It need not reach the position that matters to a function that works by position: a
shift, a triangle, a write to some rows. Such a function has a condition on its arguments here.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import TracedCall
from fedfdp.privacy.clipping.proof.places import Rows

Condition = Callable[[TracedCall, list[Rows]], bool]  # (the call, where its arguments keep records)
_MASKS = (torch.bool, torch.uint8)


def always(call: TracedCall, places: list[Rows]) -> bool:
    """A trial shows everything: each result depends on the same entries of the arguments, whatever the numbers are."""
    return True


def records_first(call: TracedCall, places: list[Rows]) -> bool:
    """The function reads neighbouring positions, perhaps beyond a trial's reach: records must be dimension 0."""
    return all(place.dim == 0 for place in places)


def rolls_within_records(call: TracedCall, places: list[Rows]) -> bool:
    dims, count = _argument(call, 2, "dims"), _target(call).dim()
    named = (dims,) if isinstance(dims, int) else dims
    return isinstance(named, (tuple, list)) and all(dim % count != place.dim for dim in named for place in places)


def repeats_all_alike(call: TracedCall, places: list[Rows]) -> bool:
    """Every record as often as any other."""
    return isinstance(_argument(call, 1, "repeats"), int)


def triangle_within_records(call: TracedCall, places: list[Rows]) -> bool:
    return all(place.dim < _target(call).dim() - 2 for place in places)


def scatters_within_records(call: TracedCall, places: list[Rows]) -> bool:
    dim, count = _argument(call, 1, "dim"), _target(call).dim()
    return isinstance(dim, int) and all(dim % max(count, 1) != place.dim for place in places)


def writes_to_all_records(call: TracedCall, places: list[Rows]) -> bool:
    """An assignment by index takes the dimension of the records, and those before it, whole."""
    given = call.args[1]
    index = given if isinstance(given, tuple) else (given,)
    if not all(map(_is_plain_index, index)):
        return False
    dims = {place.dim for place in places}
    taken = sum(item.dim() if _is_mask(item) else item is not None and item is not Ellipsis for item in index)
    at = 0
    for item in index:
        if item is Ellipsis:
            at += _target(call).dim() - taken
        elif _is_mask(item):
            at += item.dim()
        elif item is not None:
            if at in dims and not (type(item) is slice and item == slice(None)):
                return False
            at += 1
    return True


def shaped_by_numbers(name: str, call: TracedCall, later: Sequence[Tensor]) -> bool:
    """Whether the numbers in a function's arguments may decide how large its result is.

    `later` are those that hold numbers of records, without the first argument.
    """
    if name == "where":
        return len(call.args) + len(call.kwargs) == 1
    if name == "one_hot":
        return _argument(call, 1, "num_classes") in (None, -1)
    if name in ("repeat_interleave", "tensor_split"):
        return bool(later)
    if name == "__getitem__" and any(tensor.dtype in _MASKS for tensor in later):
        return True
    return any(not tensor.dim() and not tensor.is_floating_point() for tensor in later)


def _is_plain_index(item: object) -> bool:
    """Whether it is clear how many dimensions an index takes: True, for one, takes none."""
    if isinstance(item, Tensor):
        return item.dtype != torch.uint8
    if isinstance(item, list):
        return all(type(part) is int for part in item)
    return item is None or item is Ellipsis or type(item) in (int, slice)


def _target(call: TracedCall) -> Tensor:
    target = call.args[0]
    assert isinstance(target, Tensor)
    return target


def _argument(call: TracedCall, position: int, name: str) -> object:
    return call.args[position] if len(call.args) > position else call.kwargs.get(name)


def _is_mask(item: object) -> bool:
    return isinstance(item, Tensor) and item.dtype == torch.bool
