"""Undoes what a forward pass does to a model beside its weights.

What it leaves would carry records past the noise, or from one record's gradient into another's.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from fedfdp.privacy.clipping.modules import Layers

# What most attributes of a layer are: to ask of each whether it is a tensor takes longer than everything else here.
_NEVER_A_TENSOR = frozenset({bool, int, float, str, type(None), tuple, list, set, dict, OrderedDict})
_LEFT = _NEVER_A_TENSOR - {int, float}  # what a layer sets up at its first pass: hooks, and the flag that says so


@contextmanager
def changes_undone(layers: Layers, *, modules: bool = True) -> Iterator[None]:
    """Within it buffers, tensors and numbers of the layers may change; afterwards they are as before.

    With `modules`, so are the layers within a layer. Containers and flags stay as the pass leaves them.
    """
    places: list[dict[str, Any]] = [place for _, layer in layers for place in (vars(layer), layer._buffers)]
    if modules:
        places += [layer._modules for _, layer in layers if layer._modules]
    kept = [(place, place.copy()) for place in places]
    unknown = [value for _, values in kept for value in values.values() if type(value) not in _NEVER_A_TENSOR]
    tensors = [(t, t._version, t.clone()) for t in unknown if isinstance(t, Tensor)]
    try:
        yield
    finally:
        for tensor, version, copy in tensors:
            if tensor._version != version or not torch.equal(tensor, copy):  # `.data` leaves the version as it was
                if tensor.shape != copy.shape:  # by `.data =` or resize_: a shape tells of a record, too
                    tensor.data = copy
                tensor.detach().copy_(copy)
        for place, values in kept:
            if place.keys() != values.keys() or any(map(is_not, place.values(), values.values())):
                _put_back(place, values)


def _put_back(place: dict[str, Any], values: dict[str, Any]) -> None:
    for name in [name for name, value in place.items() if name not in values and type(value) not in _LEFT]:
        del place[name]
    for name, value in values.items():
        if place.get(name, place) is not value and not {type(value), type(place.get(name))} <= _LEFT:
            place[name] = value
