"""The rules for layer norm and group norm: the normalised input is computed again, the gradients are sums over it."""

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule
from fedfdp.privacy.clipping.proof.places import Reference

LayerOptions = tuple[tuple[int, ...], float]  # the normalised shape, and ε
GroupOptions = tuple[int, float]  # the number of groups, and ε


class LayerNorm(Rule[LayerOptions]):
    """y = x̂·w + b over the last dimensions: ∂w = Σ_t g_t·x̂_t, ∂b = Σ_t g_t."""

    functions = (functional.layer_norm,)

    def bind(
        self,
        input: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Bound[LayerOptions]:
        return Bound(input, weight, bias, (tuple(normalized_shape), eps))

    def leading(self, input: Tensor, options: LayerOptions) -> int:
        return input.dim() - len(options[0])

    def per_record(self, call: Call[LayerOptions], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        shape, eps = call.options
        width = torch.Size(shape).numel()
        g, found = layout.by_record(grad, width), {}
        if call.weight is not None:
            normal = layout.by_record(functional.layer_norm(call.input, shape, None, None, eps), width)
            found[call.weight] = (g * normal).sum(1).view(layout.records, *shape)
        if call.bias is not None:
            found[call.bias] = g.sum(1).view(layout.records, *shape)
        return found


class GroupNorm(Rule[GroupOptions]):
    """y = x̂·w + b per channel: ∂w = Σ_s g_s·x̂_s, ∂b = Σ_s g_s over positions s."""

    functions = (functional.group_norm,)

    def bind(
        self,
        input: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Bound[GroupOptions]:
        return Bound(input, weight, bias, (num_groups, eps))

    def leading(self, input: Tensor, options: GroupOptions) -> int:
        return 1

    def per_record(self, call: Call[GroupOptions], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        groups, eps = call.options
        g, found = grad.flatten(2) if grad.dim() > 2 else grad[..., None], {}
        if call.weight is not None:
            normal = functional.group_norm(call.input, groups, None, None, eps).reshape(g.shape)
            found[call.weight] = layout.by_record((g * normal).sum(2), g.shape[1]).sum(1)
        if call.bias is not None:
            found[call.bias] = layout.by_record(g.sum(2), g.shape[1]).sum(1)
        return found
