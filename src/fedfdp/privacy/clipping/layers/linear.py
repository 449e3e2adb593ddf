"""The rule for linear layers, over any leading dimensions."""

from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Contribution, Gram, Outer, Stored
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule, wide


class Linear(Rule[None]):
    """y = a Wᵀ + b: ∂W = Σ_t g_t ⊗ a_t, ∂b = Σ_t g_t over the record's rows t."""

    functions = (functional.linear,)

    def bind(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Bound[None]:
        return Bound(input, weight, bias, None)

    def leading(self, input: Tensor, options: None) -> int:
        return input.dim() - 1

    def per_record(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[str, Tensor]:
        a, g = self._factors(call, grad, layout)
        found = {call.weight: g.mT @ a} if call.weight is not None else {}
        return found | ({call.bias: g.sum(1)} if call.bias is not None else {})

    def contributions(self, call: Call[None], grad: Tensor, layout: Layout) -> list[Contribution]:
        records = layout.records
        if call.rows == records:
            return [Outer(call.weight, call.bias, call.input.reshape(records, -1), grad.reshape(records, -1))]
        a, g = self._factors(call, grad, layout)
        found: list[Contribution] = []
        if call.weight is not None:
            if wide(a.shape[1], a.shape[2], g.shape[2]):
                found.append(Gram(call.weight, lambda i, j: (a[i:j], g[i:j]), records, records))
            else:
                found.append(Stored(call.weight, g.mT @ a))
        return found + ([Stored(call.bias, g.sum(1))] if call.bias is not None else [])

    def _factors(self, call: Call[None], grad: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        a = layout.by_record(call.input, call.input.shape[-1])
        return a, layout.by_record(grad, grad.shape[-1])
