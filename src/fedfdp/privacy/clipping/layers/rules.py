"""The rules for linear layers, embeddings and normalisations; convolutions have a file of their own.

A rule turns (input, output gradient) into per-sample parameter gradients. It never sees coefficients or the model.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Contribution, Gram, Outer, Sparse, Stored
from fedfdp.privacy.clipping.tape import Call, Rule
from fedfdp.privacy.clipping.watch import UnsupportedError

STORE = 2**16  # weights up to this many are stored per record; larger ones stay products of factors


def by_record(rows: Tensor, batch: int, before: int, width: int) -> Tensor:
    """(B, L, width) from rows laid out as (before, batch, after): sequence-first and folded batches included."""
    return rows.reshape(before, batch, -1, width).transpose(0, 1).reshape(batch, -1, width)


def wide(rows: int, width: int, height: int) -> bool:
    """Whether a gradient of this size is better never formed: too large to store, and few rows make it up."""
    return width * height > max(STORE, 2 * rows * (width + height))


class PerSample(Rule):
    """A rule whose cheapest form is the stored gradient."""

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        return [Stored(name, rows) for name, rows in self.per_sample(call, grad, batch, before).items()]


class Linear(Rule):
    """y = a Wᵀ + b with any leading dimensions: ∂W = Σ_t g_t ⊗ a_t, ∂b = Σ_t g_t over the record's rows t."""

    functions = (functional.linear,)

    def bind(
        self, input: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, Any]:
        return input, weight, bias, None

    def leading(self, input: Tensor, options: Any) -> int:
        return input.dim() - 1

    def _factors(self, call: Call, grad: Tensor, batch: int, before: int) -> tuple[Tensor, Tensor]:
        a = by_record(call.input, batch, before, call.input.shape[-1])
        return a, by_record(grad, batch, before, grad.shape[-1])

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        a, g = self._factors(call, grad, batch, before)
        found = {call.weight: g.mT @ a} if call.weight is not None else {}
        return found | ({call.bias: g.sum(1)} if call.bias is not None else {})

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        if call.rows == batch:
            return [Outer(call.weight, call.bias, call.input.reshape(batch, -1), grad.reshape(batch, -1))]
        a, g = self._factors(call, grad, batch, before)
        found: list[Contribution] = []
        if call.weight is not None:
            if wide(a.shape[1], a.shape[2], g.shape[2]):
                found.append(Gram(call.weight, lambda i, j: (a[i:j], g[i:j]), batch, batch))
            else:
                found.append(Stored(call.weight, g.mT @ a))
        return found + ([Stored(call.bias, g.sum(1))] if call.bias is not None else [])


class Embedding(Rule):
    """y_t = W[i_t]: the gradient of a table row is the sum over the places where the record holds its index."""

    functions = (functional.embedding,)

    def bind(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> tuple[Tensor, Tensor, None, Any]:
        if max_norm is not None or scale_grad_by_freq:
            raise UnsupportedError("an embedding with max_norm or scale_grad_by_freq")
        skip = None if padding_idx is None else padding_idx % weight.shape[0]
        return input, weight, None, (weight.shape[0], skip)

    def leading(self, input: Tensor, options: Any) -> int:
        return input.dim()

    def _entries(self, call: Call, grad: Tensor, batch: int, before: int) -> tuple[Tensor, Tensor, Tensor]:
        table, padding = call.options
        index = by_record(call.input, batch, before, 1)[..., 0]  # (B, L)
        g = by_record(grad, batch, before, grad.shape[-1])
        if padding is not None:
            g = g.masked_fill((index == padding)[..., None], 0)
        place = index + table * torch.arange(batch, device=index.device)[:, None]
        distinct, entry = place.flatten().unique(return_inverse=True)
        values = g.new_zeros(len(distinct), g.shape[2]).index_add_(0, entry, g.flatten(0, 1))
        return distinct // table, distinct % table, values

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        record, row, values = self._entries(call, grad, batch, before)
        dense = values.new_zeros(batch, call.options[0], values.shape[1])
        dense[record, row] = values
        return {str(call.weight): dense}

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        return [Sparse(str(call.weight), *self._entries(call, grad, batch, before), batch, call.options[0])]


class LayerNorm(PerSample):
    """y = x̂·w + b over the last dimensions: ∂w = Σ_t g_t·x̂_t, ∂b = Σ_t g_t."""

    functions = (functional.layer_norm,)

    def bind(
        self,
        input: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Any]:
        return input, weight, bias, (tuple(normalized_shape), eps)

    def leading(self, input: Tensor, options: Any) -> int:
        return input.dim() - len(options[0])

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        shape, eps = call.options
        width = torch.Size(shape).numel()
        g, found = by_record(grad, batch, before, width), {}
        if call.weight is not None:
            normal = by_record(functional.layer_norm(call.input, shape, None, None, eps), batch, before, width)
            found[call.weight] = (g * normal).sum(1).view(batch, *shape)
        if call.bias is not None:
            found[call.bias] = g.sum(1).view(batch, *shape)
        return found


class GroupNorm(PerSample):
    """y = x̂·w + b per channel: ∂w = Σ_s g_s·x̂_s, ∂b = Σ_s g_s over positions s."""

    functions = (functional.group_norm,)

    def bind(
        self,
        input: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Any]:
        return input, weight, bias, (num_groups, eps)

    def leading(self, input: Tensor, options: Any) -> int:
        return 1

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        groups, eps = call.options
        g, found = grad.flatten(2) if grad.dim() > 2 else grad[..., None], {}
        if call.weight is not None:
            normal = functional.group_norm(call.input, groups, None, None, eps).reshape(g.shape)
            found[call.weight] = by_record((g * normal).sum(2), batch, before, g.shape[1]).sum(1)
        if call.bias is not None:
            found[call.bias] = by_record(g.sum(2), batch, before, g.shape[1]).sum(1)
        return found
