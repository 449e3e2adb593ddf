"""The rule for convolutions in one, two and three dimensions, with any stride, padding, dilation and groups.

The patches under the kernel are a strided view of the input, copied for a few records at a time, never for a batch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.rules import PerSample, by_record
from fedfdp.privacy.clipping.tape import Call

PATCHES = 2**20  # numbers in one copy of patches: small enough to stay in cache


def _each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value) * (count if len(value) == 1 else 1)


class Convolution(PerSample):
    """∂W = Σ_s g_s ⊗ patch_s over output positions s, group by group; ∂b = Σ_s g_s."""

    functions = (functional.conv1d, functional.conv2d, functional.conv3d)

    def bind(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> tuple[Tensor, Tensor, Tensor | None, Any]:
        kernel = tuple(weight.shape[2:])
        dims = len(kernel)
        dilation, stride = _each(dilation, dims), _each(stride, dims)
        if padding == "same":
            whole = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
            pads = [(w // 2, w - w // 2) for w in whole]
        else:
            pads = [(p, p) for p in _each(0 if isinstance(padding, str) else padding, dims)]
        return input, weight, bias, (tuple(weight.shape), stride, tuple(pads), dilation, groups)

    def rows(self, input: Tensor, options: Any) -> int:
        # An input without a batch dimension is one record's row.
        return input.shape[0] if input.dim() == len(options[0]) else 1

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        shape = call.options[0]
        grad = grad.reshape(call.rows, shape[0], -1)
        found = {}
        if call.weight is not None:
            found[call.weight] = self._weights(call, grad)
        if call.bias is not None:
            found[call.bias] = grad.sum(2)
        if call.rows != batch:
            found = {
                n: by_record(r, batch, before, r[0].numel()).sum(1).view(batch, *r.shape[1:]) for n, r in found.items()
            }
        return found

    def _weights(self, call: Call, grad: Tensor) -> Tensor:
        shape, stride, pads, dilation, groups = call.options
        dims, places, inner = len(shape) - 2, grad.shape[2], torch.Size(shape[1:]).numel()
        x = call.input.reshape(call.rows, -1, *call.input.shape[-dims:])
        out = [
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(x.shape[2:], pads, dilation, shape[2:], stride, strict=True)
        ]
        rows = grad.new_empty(call.rows * groups, shape[0] // groups, inner)
        step = max(1, PATCHES // (inner * groups * places))
        for start in range(0, call.rows, step):
            part = x[start : start + step]
            if any(map(any, pads)):
                part = functional.pad(part, [p for pair in reversed(pads) for p in pair])
            part = part.contiguous()
            lead, *space = part.stride()[1:]
            view = part.as_strided(
                (len(part), groups, shape[1], *shape[2:], *out),
                (
                    part.stride(0),
                    lead * shape[1],
                    lead,
                    *(d * s for d, s in zip(dilation, space, strict=True)),
                    *(t * s for t, s in zip(stride, space, strict=True)),
                ),
            )
            patches = view.reshape(len(part) * groups, inner, places)
            g = grad[start : start + step].reshape(len(part) * groups, -1, places)
            torch.bmm(g, patches.mT, out=rows[start * groups : (start + len(part)) * groups])
        return rows.view(call.rows, *shape)
