"""The rule for convolutions in one, two and three dimensions, with any stride, padding, dilation and groups.

Never forms a gradient that is better left as a product, and never copies the patches of a whole batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.groups import arranged
from fedfdp.privacy.clipping.layers.patches import Geometry, Patches
from fedfdp.privacy.clipping.layers.rule import Bound, Call, Layout, Rule, named, wide
from fedfdp.privacy.clipping.proof.places import Reference


def _each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value) * (count if len(value) == 1 else 1)


def as_channels_last(image: Tensor) -> Tensor:
    """A batch of images with their channels innermost, on a CPU: pooling and all else is several times faster then."""
    if image.dim() != 4 or image.device.type != "cpu":
        return image
    if image.shape[1] == 1:  # one channel is in either order: only the strides say which is meant
        image = image.contiguous()
        return image.as_strided(image.shape, (image.stride(0), 1, image.stride(2), image.stride(3)))
    return image.contiguous(memory_format=torch.channels_last)


class Convolution(Rule[Geometry]):
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
    ) -> Bound[Geometry]:
        kernel = tuple(weight.shape[2:])
        dims = len(kernel)
        dilation, stride = _each(dilation, dims), _each(stride, dims)
        if padding == "same":
            whole = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
            pads = [(w // 2, w - w // 2) for w in whole]
        else:
            pads = [(p, p) for p in _each(0 if isinstance(padding, str) else padding, dims)]
        return Bound(input, weight, bias, Geometry(kernel, stride, tuple(pads), dilation, groups))

    def leading(self, input: Tensor, options: Geometry) -> int:
        return input.dim() - len(options.kernel) - 1  # none where the input has no batch dimension

    def run(self, func: Callable[..., Tensor], channels_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        """Patches too are several times faster with the channels of images innermost."""
        image = args[0] if args else kwargs.pop("input")
        if channels_last and func is functional.conv2d:
            image = as_channels_last(image)
        return func(image, *args[1:], **kwargs)

    def per_record(self, call: Call[Geometry], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        grad, found = self._by_place(call, grad), {}
        if call.weight is not None:
            patches = Patches.under(call.input, call.rows, call.options, grad.shape[2])
            rows = arranged(patches.times(grad), patches.order)
            found[call.weight] = _one_row(rows.reshape(len(rows), *patches.shape(grad.shape[1])), layout)
        if call.bias is not None:
            found[call.bias] = _one_row(grad.sum(2), layout)
        return found

    def contributions(self, call: Call[Geometry], grad: Tensor, layout: Layout) -> list[Contribution]:
        if call.rows != layout.records:
            return super().contributions(call, grad, layout)
        grad, weight, bias = self._by_place(call, grad), named(call.weight), named(call.bias)
        found: list[Contribution] = []
        if weight is not None:
            patches = Patches.under(call.input, call.rows, call.options, grad.shape[2])
            if call.options.groups == 1 and wide(grad.shape[2], patches.inner, grad.shape[1]):
                found.append(patches.gram(weight, grad))
            else:
                found.append(Stored(weight, patches.times(grad), patches.order))
        return found + ([Stored(bias, grad.sum(2))] if bias is not None else [])

    def _by_place(self, call: Call[Geometry], grad: Tensor) -> Tensor:
        return grad.reshape(call.rows, *grad.shape[-len(call.options.kernel) - 1 :]).flatten(2)


class Transposed(Convolution):
    """The adjoint of a convolution: ∂W = Σ_s x_s ⊗ patch_s, where the patches are those of the output's gradient."""

    functions = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)

    def bind(  # type: ignore[override]
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Bound[Geometry]:
        return super().bind(input, weight, bias, stride, padding, dilation, groups)

    def run(self, func: Callable[..., Tensor], channels_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        return func(*args, **kwargs)

    def per_record(self, call: Call[Geometry], grad: Tensor, layout: Layout) -> dict[Reference, Tensor]:
        dims, found = len(call.options.kernel), {}
        x = self._by_place(call, call.input)
        g = grad.reshape(call.rows, *grad.shape[-dims - 1 :])
        if call.weight is not None:
            patches = Patches.under(g, call.rows, call.options, x.shape[2])
            rows = arranged(patches.times(x), patches.order)
            found[call.weight] = _one_row(rows.reshape(len(rows), *patches.shape(x.shape[1])), layout)
        if call.bias is not None:
            found[call.bias] = _one_row(g.flatten(2).sum(2), layout)
        return found

    def contributions(self, call: Call[Geometry], grad: Tensor, layout: Layout) -> list[Contribution]:
        return [Stored(str(named(name)), rows) for name, rows in self.per_record(call, grad, layout).items()]


def _one_row(rows: Tensor, layout: Layout) -> Tensor:
    """One row per record: the sum where a record has several images."""
    if len(rows) == layout.records:
        return rows
    return layout.by_record(rows, rows[0].numel()).sum(1).view(layout.records, *rows.shape[1:])
