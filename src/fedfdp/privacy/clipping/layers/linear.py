"""The rules for linear layers and products with a matrix, over any leading dimensions."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import STORE, Contribution, Gram, Outer, Stored
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule, named, wide
from fedfdp.privacy.clipping.products import Factors, Product, joined, stored
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.proof.places import Reference


class Linear(Rule[None]):
    """y = a Wᵀ + b: ∂W = Σ_t g_t ⊗ a_t, ∂b = Σ_t g_t over the record's rows t."""

    functions = (functional.linear,)

    def bind(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Bound[None]:
        return Bound(input, weight, bias, None)

    def leading(self, input: Tensor, options: None) -> int:
        return input.dim() - 1

    def per_record(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        a, g = self._factors(call, grad, layout)
        found = {call.weight: g.mT @ a} if call.weight is not None else {}
        return found | ({call.bias: g.sum(1)} if call.bias is not None else {})

    def factors(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor | Factors]:
        a, g = self._factors(call, grad, layout)
        found: dict[Reference, Tensor | Factors] = {}
        if call.weight is not None:
            found[call.weight] = Factors(g, a, g.shape[2], a.shape[2])
        return found | ({call.bias: g.sum(1)} if call.bias is not None else {})

    def contributions(self, call: Call[None], grad: Tensor, layout: Layout) -> list[Contribution]:
        records, weight, bias = layout.records, named(call.weight), named(call.bias)
        if call.rows == records:
            return [Outer(weight, bias, call.input.reshape(records, -1), grad.reshape(records, -1))]
        a, g = self._factors(call, grad, layout)
        found: list[Contribution] = []
        if weight is not None:
            if wide(a.shape[1], a.shape[2], g.shape[2]):
                found.append(Gram(weight, lambda i, j: (a[i:j], g[i:j]), records, records))
            elif a.shape[2] * g.shape[2] > STORE:
                found.append(Product(weight, [Factors(g, a, g.shape[2], a.shape[2])]))
            else:
                found.append(stored(weight, g, a))
        return found + ([Stored(bias, g.sum(1))] if bias is not None else [])

    def _factors(self, call: Call[None], grad: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        a = layout.by_record(call.input, call.input.shape[-1])
        return a, layout.by_record(grad, grad.shape[-1])


class Matmul(Rule[None]):
    """y = a W, and b + a W, with W (in, out): ∂W = Σ_t a_t ⊗ g_t, ∂b = Σ_t g_t."""

    functions: ClassVar[tuple[Callable[..., Tensor], ...]] = (
        *(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm),
    )

    def bind(self, input: Tensor, other: Tensor) -> Bound[None]:
        if other.dim() != 2 or input.dim() < 2:
            raise UnsupportedError("a product of something else than rows with a matrix")
        return Bound(input, other, None, None)

    def leading(self, input: Tensor, options: None) -> int:
        return input.dim() - 1

    def per_record(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        parts = self.factors(call, grad, layout)
        return {name: part if isinstance(part, Tensor) else part.dense() for name, part in parts.items()}

    def factors(self, call: Call[None], grad: Tensor, layout: Layout) -> dict[Reference, Tensor | Factors]:
        a = layout.by_record(call.input, call.input.shape[-1])
        g = layout.by_record(grad, grad.shape[-1])
        found: dict[Reference, Tensor | Factors] = {}
        if call.weight is not None:
            found[call.weight] = Factors(a, g, a.shape[2], g.shape[2])
        return found | ({call.bias: g.sum(1)} if call.bias is not None else {})

    def contributions(self, call: Call[None], grad: Tensor, layout: Layout) -> list[Contribution]:
        return [
            Stored(str(named(name)), part) if isinstance(part, Tensor) else joined(str(named(name)), [part])
            for name, part in self.factors(call, grad, layout).items()
        ]


class Addmm(Matmul):
    """The same with a bias, in the order that `addmm` has."""

    functions: ClassVar[tuple[Callable[..., Tensor], ...]] = (torch.addmm, Tensor.addmm)

    def bind(  # type: ignore[override]
        self, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Bound[None]:
        if beta != 1 or alpha != 1 or input.dim() != 1:
            raise UnsupportedError("addmm with factors, or with another bias than one for each column")
        return Bound(mat1, mat2, input, None)
