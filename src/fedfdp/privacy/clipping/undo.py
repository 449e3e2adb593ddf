"""Undoes what a forward pass does to a model beside its weights.

What it leaves would carry records past the noise, or from one record's gradient into another's.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedfdp.privacy.clipping.modules import Layers

# What most attributes of a layer are: to ask of each whether it is a tensor takes longer than everything else here.
_NEVER_A_TENSOR = frozenset({bool, int, float, str, type(None), tuple, list, set, dict, OrderedDict})
_LEFT = _NEVER_A_TENSOR - {int, float}  # what a layer sets up at its first pass: hooks, and the flag that says so


class Lies(NamedTuple):
    """Where and how a tensor lies in memory, and whether it is trained."""

    place: int
    size: int  # of the memory that it is a part of
    stride: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Tensor) -> "Lies":
        size = tensor.untyped_storage().nbytes()
        return cls(tensor.data_ptr(), size, tensor.stride(), tensor.shape, tensor.dtype, tensor.requires_grad)


@contextmanager
def changes_undone(layers: Layers, *, modules: bool = True) -> Iterator[None]:
    """Within it buffers, tensors and numbers of the layers may change; afterwards they are as before.

    So are its parameters, as objects, and with `modules` the layers within a layer. Containers and flags stay as the
    pass leaves them, but for the one that says whether a layer is in training: by it a pass could begin another one,
    examined with what it left.
    """
    places: list[dict[str, Any]] = [vars(layer) for _, layer in layers]
    places += [layer._buffers for _, layer in layers]
    kept = len(places)
    places += [layer._parameters for _, layer in layers]  # as objects: state.py compares their numbers
    if modules:
        places += [layer._modules for _, layer in layers]
    # In few long lists: many small objects at once would set off Python's collector of garbage in every step.
    lengths, names, values = [*map(len, places)], [*chain.from_iterable(places)], [*_values(places)]
    unknown = [value for value in _values(places[:kept]) if type(value) not in _NEVER_A_TENSOR]
    tensors = [(t, t.data, t.clone(), Lies.of(t)) for t in unknown if isinstance(t, Tensor)]
    try:
        yield
    finally:
        for tensor, lying, copy, as_before in tensors:
            now = Lies.of(tensor)
            if now != as_before:  # by `.data =`, resize_ or a flag: they tell of a record, too
                tensor.data = lying if Lies.of(lying).size == as_before.size else copy
                tensor.requires_grad_(as_before.requires_grad)
            if not torch.equal(bits(tensor.data), bits(copy)):
                tensor.detach().copy_(copy)
        # All at once, since hardly ever anything has changed, and a model has hundreds of places.
        same = [*map(len, places)] == lengths and [*chain.from_iterable(places)] == names
        if not same or not all(map(is_, _values(places), values)):
            before = zip(names, values, strict=True)
            for place, length in zip(places, lengths, strict=True):
                _put_back(place, dict(islice(before, length)))


def _values(places: list[dict[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(dict.values, places))


_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


def bits(tensor: Tensor) -> Tensor:
    """The numbers as whole numbers of the same bits: NaN equals itself, and 0 is not −0."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    tensor = tensor.resolve_neg().detach()
    return tensor.view(_WHOLE[tensor.itemsize]) if tensor.is_floating_point() and tensor.itemsize in _WHOLE else tensor


def _put_back(place: dict[str, Any], values: dict[str, Any]) -> None:
    for name in [name for name, value in place.items() if name not in values and type(value) not in _LEFT]:
        del place[name]
    for name, value in values.items():
        now = place.get(name, place)
        if now is not value and (name == "training" or not {type(value), type(now)} <= _LEFT):
            place[name] = value
