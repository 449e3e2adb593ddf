"""The parts of an input that a convolution's kernel sees, one column of numbers for each output position.

They are a strided view, copied for a few records at a time: small enough to stay in cache, never for a whole batch.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedfdp.privacy.clipping.contributions import Gram

COPY = 2**20  # numbers in one copy


@dataclass(frozen=True)
class Geometry:
    """How a kernel moves over its input, with one entry per dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Patches:
    """The patches of `x`, (N, C, …), with channels innermost if `last`: the order that lets a copy read longer runs."""

    x: Tensor
    geometry: Geometry
    out: tuple[int, ...]
    last: bool

    @classmethod
    def under(cls, input: Tensor, rows: int, o: Geometry, places: int) -> "Patches":
        """The patches of so many images under a kernel that meets them in this many positions."""
        dims = len(o.kernel)
        x = input.reshape(rows, -1, *input.shape[-dims:])
        out = tuple(
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(x.shape[2:], o.pads, o.dilation, o.kernel, o.stride, strict=True)
        )
        assert math.prod(out) == places
        along_row = out[-1] if o.stride[-1] == 1 else 1
        return cls(x, o, out, last=dims == 2 and o.groups == 1 and o.kernel[-1] * x.shape[1] > along_row)

    @property
    def width(self) -> int:
        return self.x.shape[1] // self.geometry.groups

    @property
    def inner(self) -> int:
        """Numbers in one patch of one group."""
        return self.width * math.prod(self.geometry.kernel)

    @property
    def order(self) -> tuple[int, ...]:
        """The permutation from a row of `times` to the weight's own order of numbers."""
        dims = len(self.out)
        return (dims + 1, dims, *range(dims)) if self.last else (0, dims + 2, *range(1, dims + 2))

    @property
    def step(self) -> int:
        """How many records to copy at a time."""
        return max(1, COPY // (self.inner * self.geometry.groups * math.prod(self.out)))

    def shape(self, height: int) -> tuple[int, ...]:
        """The shape of the weight for this many output channels."""
        return (height, self.width, *self.geometry.kernel)

    def copy(self, start: int, stop: int, buffer: Tensor | None = None) -> Tensor:
        """(records·groups, inner, places), in the buffer if one is given."""
        o, part = self.geometry, self.x[start:stop]
        if any(map(any, o.pads)):
            part = functional.pad(part, [p for pair in reversed(o.pads) for p in pair])
        part = part.contiguous(memory_format=torch.channels_last if self.last else torch.contiguous_format)
        first, channel, *space = part.stride()
        kernel = [d * s for d, s in zip(o.dilation, space, strict=True)]
        move = [t * s for t, s in zip(o.stride, space, strict=True)]
        shape: tuple[int, ...]
        if self.last:
            shape, strides = (len(part), *self.out, *o.kernel, self.width), (first, *move, *kernel, channel)
        else:
            shape = (len(part), o.groups, self.width, *o.kernel, *self.out)
            strides = (first, channel * self.width, channel, *kernel, *move)
        numbers = part.new_empty(math.prod(shape)) if buffer is None else buffer[: math.prod(shape)]
        numbers.view(shape).copy_(part.as_strided(shape, strides))
        count, places = len(part) * o.groups, math.prod(self.out)
        return numbers.view(count, places, self.inner).mT if self.last else numbers.view(count, self.inner, places)

    def times(self, grad: Tensor) -> Tensor:
        """Per-sample products with output gradients (N, channels, places): the weight's, up to `order`."""
        groups, (records, channels, places) = self.geometry.groups, grad.shape
        height = channels // groups
        rows = grad.new_empty(records * groups, self.inner, height)
        buffer = grad.new_empty(min(self.step, records) * groups * self.inner * places)
        for start in range(0, records, self.step):
            stop = min(start + self.step, records)
            g = grad[start:stop].reshape((stop - start) * groups, height, places).mT
            torch.bmm(self.copy(start, stop, buffer), g, out=rows[start * groups : stop * groups])
        if self.last:
            return rows.view(records, *self.geometry.kernel, self.width, channels)
        return rows.view(records, groups, self.width, *self.geometry.kernel, height)

    def gram(self, weight: str, grad: Tensor) -> Gram:
        """The same products left as factors; for a kernel in one group."""
        kernel, dims = self.geometry.kernel, len(self.out)
        return Gram(
            weight,
            lambda start, stop: (self.copy(start, stop).mT, grad[start:stop].mT),
            batch=len(grad),
            step=self.step,
            inner=(*kernel, self.width) if self.last else (self.width, *kernel),
            order=(0, dims + 1, *range(1, dims + 1)) if self.last else None,
        )
