"""Questions about the arguments of a traced call, as its key has them."""

import torch
from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import Size
from fedfdp.privacy.clipping.proof.places import Reference


def adds_dimensions(index: object) -> bool:
    """Whether an index takes everything and only adds dimensions."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or (type(part) is slice and part == slice(None)) for part in parts)


def renamed(key: object, number: dict[Reference, int]) -> object:
    """A key with its values numbered from 0: two calls alike have the same."""
    if type(key) is Reference:
        return Reference("value", number[key])
    if type(key) is Size:
        return ("size", *key)
    return tuple([renamed(part, number) for part in key]) if type(key) is tuple else (type(key), key)


def counts(sample: Tensor) -> bool:
    """Whether it is 0, 1, 2, …"""
    return torch.equal(sample, torch.arange(len(sample), device=sample.device))


def grows(pattern: object) -> bool:
    """Whether there is a whole number in it that differs with the number of records."""
    if type(pattern) is tuple:
        return any(map(grows, pattern))
    return type(pattern) is Size
