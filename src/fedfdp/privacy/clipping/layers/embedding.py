"""The rule for embeddings: a record's gradient touches only the table rows whose indices it holds."""

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Contribution, Factors, Sparse
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule, named
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.proof.places import Reference

Table = tuple[int, int | None]  # how many rows it has, and the one that is not trained


class Embedding(Rule[Table]):
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
    ) -> Bound[Table]:
        if max_norm is not None or scale_grad_by_freq:
            raise UnsupportedError("an embedding with max_norm or scale_grad_by_freq")
        skip = None if padding_idx is None else padding_idx % weight.shape[0]
        return Bound(input, weight, None, (weight.shape[0], skip))

    def leading(self, input: Tensor, options: Table) -> int:
        return input.dim()

    def per_record(self, call: Call[Table], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        assert call.weight is not None
        record, row, values = self._entries(call, grad, layout)
        dense = values.new_zeros(layout.records, call.options[0], values.shape[1])
        dense[record, row] = values
        return {call.weight: dense}

    def factors(self, call: Call[Table], grad: Tensor, layout: Layout) -> dict[Reference, Tensor | Factors]:
        assert call.weight is not None
        index, g = self._places(call, grad, layout)
        return {call.weight: Factors(index, g, call.options[0], g.shape[2])}

    def contributions(self, call: Call[Table], grad: Tensor, layout: Layout) -> list[Contribution]:
        return [Sparse(str(named(call.weight)), *self._entries(call, grad, layout), layout.records, call.options[0])]

    def _entries(self, call: Call[Table], grad: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """The record, the table row and the gradient of each pair of the two that occurs."""
        table = call.options[0]
        index, g = self._places(call, grad, layout)
        place = index + table * torch.arange(layout.records, device=index.device)[:, None]
        distinct, entry = torch.unique(place.flatten(), return_inverse=True)
        values = g.new_zeros(len(distinct), g.shape[2]).index_add_(0, entry, g.flatten(0, 1))
        return distinct // table, distinct % table, values

    def _places(self, call: Call[Table], grad: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """(B, L) the table row of each place, and (B, L, width) its gradient."""
        index = layout.by_record(call.input, 1)[..., 0]
        g = layout.by_record(grad, grad.shape[-1])
        padding = call.options[1]
        return index, g if padding is None else g.masked_fill((index == padding)[..., None], 0)
