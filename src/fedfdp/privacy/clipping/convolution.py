"""The rule for convolutions in one, two and three dimensions, with any stride, padding, dilation and groups.

The patches under the kernel are a strided view of the input, copied for a few records at a time, never for a batch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.rules import by_record
from fedfdp.privacy.clipping.tape import Call, Rule

PATCHES = 2**20  # numbers in one copy of patches: small enough to stay in cache, large enough for few calls


def _each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value) * (count if len(value) == 1 else 1)


@dataclass(frozen=True)
class Options:
    """How a kernel moves over its input, one entry a dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int


class Convolution(Rule):
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
        return input, weight, bias, Options(kernel, stride, tuple(pads), dilation, groups)

    def rows(self, input: Tensor, options: Any) -> int:
        # An input without a batch dimension is one record's row.
        return input.shape[0] if input.dim() == len(options.kernel) + 2 else 1

    def run(self, func: Any, images_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        """On a CPU, pooling and patches are several times faster with channels innermost, and so all that follows."""
        image = args[0] if args else kwargs.pop("input")
        if images_last and func is functional.conv2d and image.dim() == 4 and image.device.type == "cpu":
            if image.shape[1] == 1:  # one channel is in either order; only the strides tell which is meant
                image = image.contiguous()
                image = image.as_strided(image.shape, (image.stride(0), 1, image.stride(2), image.stride(3)))
            image = image.contiguous(memory_format=torch.channels_last)
        output: Tensor = func(image, *args[1:], **kwargs)
        return output

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        return {stored.name: stored.arranged() for stored in self._stored(call, grad, batch, before)}

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        return list(self._stored(call, grad, batch, before))

    def _stored(self, call: Call, grad: Tensor, batch: int, before: int) -> Iterator[Stored]:
        grad = grad.reshape(call.rows, *grad.shape[-len(call.options.kernel) - 1 :]).flatten(2)
        if call.weight is not None:
            rows, order = _weights(call, grad)
            yield Stored(call.weight, _one_row(rows, batch, before), order)
        if call.bias is not None:
            yield Stored(call.bias, _one_row(grad.sum(2), batch, before))


def _one_row(rows: Tensor, batch: int, before: int) -> Tensor:
    if len(rows) == batch:
        return rows
    return by_record(rows, batch, before, rows[0].numel()).sum(1).view(batch, *rows.shape[1:])


def _weights(call: Call, grad: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Per-sample weight gradients in whichever order of numbers is cheap, and the permutation to the weight's own."""
    o: Options = call.options
    dims, places = len(o.kernel), grad.shape[2]
    x = call.input.reshape(call.rows, -1, *call.input.shape[-dims:])
    out = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], o.pads, o.dilation, o.kernel, o.stride, strict=True)
    ]
    # A copy is as fast as its contiguous runs are long: along the output row, or along kernel row and channels.
    along_row, along_kernel = out[-1] if o.stride[-1] == 1 else 1, o.kernel[-1] * x.shape[1]
    last = dims == 2 and o.groups == 1 and along_kernel > along_row
    width = x.shape[1] // o.groups
    inner = width * math.prod(o.kernel)
    rows = grad.new_empty(call.rows * o.groups, inner, grad.shape[1] // o.groups)
    step = max(1, PATCHES // (inner * o.groups * places))
    buffer = grad.new_empty(min(step, call.rows) * o.groups * inner * places)
    for start in range(0, call.rows, step):
        part = x[start : start + step]
        if any(map(any, o.pads)):
            part = functional.pad(part, [p for pair in reversed(o.pads) for p in pair])
        part = part.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        first, channel, *space = part.stride()
        count = len(part) * o.groups
        kernel = [d * s for d, s in zip(o.dilation, space, strict=True)]
        move = [t * s for t, s in zip(o.stride, space, strict=True)]
        if last:
            shape, strides = (len(part), *out, *o.kernel, width), (first, *move, *kernel, channel)
        else:
            shape = (len(part), o.groups, width, *o.kernel, *out)
            strides = (first, channel * width, channel, *kernel, *move)
        patches = buffer[: count * inner * places].view(shape).copy_(part.as_strided(shape, strides))
        patches = patches.view(count, places, inner).mT if last else patches.view(count, inner, places)
        g = grad[start : start + step].reshape(count, -1, places).mT
        torch.bmm(patches, g, out=rows[start * o.groups : start * o.groups + count])
    if last:
        return rows.view(call.rows, *o.kernel, width, grad.shape[1]), (dims + 1, dims, *range(dims))
    return rows.view(call.rows, o.groups, width, *o.kernel, -1), (0, dims + 2, *range(1, dims + 2))
