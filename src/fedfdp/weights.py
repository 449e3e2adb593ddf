"""Arithmetic on weights, which are dicts of tensors by parameter name. Nothing here changes its inputs but `add_`."""

from collections.abc import Iterable

import torch
from torch import Tensor

from fedfdp.records import Weights


def zeros_like(weights: Weights) -> Weights:
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def clone(weights: Weights) -> Weights:
    return {name: tensor.clone() for name, tensor in weights.items()}


def add(left: Weights, right: Weights, scale: float = 1.0) -> Weights:
    """left + scale·right"""
    return {name: torch.add(tensor, right[name], alpha=scale) for name, tensor in left.items()}


def subtract(left: Weights, right: Weights) -> Weights:
    return {name: tensor - right[name] for name, tensor in left.items()}


def multiply(weights: Weights, factor: float) -> Weights:
    return {name: tensor * factor for name, tensor in weights.items()}


def add_(total: Weights, other: Weights, scale: float = 1.0) -> None:
    """total ← total + scale·other, in place: how a sum over clients is kept without keeping the clients."""
    for name, tensor in total.items():
        tensor.add_(other[name], alpha=scale)


def squared_norm(weights: Weights) -> float:
    return float(sum(torch.linalg.vector_norm(t, dtype=torch.float64) ** 2 for t in weights.values()))


def size(weights: Weights) -> int:
    """d, the number of weights."""
    return sum(tensor.numel() for tensor in weights.values())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
