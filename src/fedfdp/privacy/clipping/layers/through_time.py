"""Recurrent layers place by place, forward and back: what happens between their two linear maps.

Each is a function of autograd's with few operations per place. Its backward pass gives the gradients of the mapped
inputs at all places at once. Records never meet: every operation is by elements, or a product with a fixed matrix.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable


class LstmCore(Function):
    """i, f, g, o from x_t + h W + b; c = f·c + i·g; h = o·tanh(c)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        gates = (x + bias).transpose(0, 1).contiguous()  # (T, B, 4H)
        places, batch, width = len(gates), len(h), h.shape[1]
        cells, tanhs = x.new_empty(places + 1, batch, width), x.new_empty(places, batch, width)
        output = x.new_empty(places, batch, width)
        cells[0], turned = c, weight.t()
        for t in range(places):
            gate = gates[t].addmm_(h, turned)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            i, f, g, o = gate.chunk(4, 1)
            torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, g)
            torch.tanh(cells[t + 1], out=tanhs[t])
            h = torch.mul(o, tanhs[t], out=output[t])
        ctx.save_for_backward(gates, cells, tanhs, weight)
        return output.transpose(0, 1), h.clone(), cells[places].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, tanhs, weight = ctx.saved_tensors
        width = tanhs.shape[2]
        i, f, g, o = gates.chunk(4, 2)
        # By how much c and h move with what is behind each gate, at all places at once.
        at_c = torch.stack([g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g * g)], 2)  # (T, B, 3, H)
        at_h, through = tanhs * o * (1 - o), o * (1 - tanhs * tanhs)
        back = torch.empty_like(gates)
        first, last = back[:, :, : 3 * width].view(*back.shape[:2], 3, width), back[:, :, 3 * width :]
        given = grad.transpose(0, 1)
        for t in range(len(gates) - 1, -1, -1):
            dh = dh + given[t]
            dc = torch.addcmul(dc, dh, through[t])
            torch.mul(dc[:, None], at_c[t], out=first[t])
            torch.mul(dh, at_h[t], out=last[t])
            dc = dc * f[t]
            dh = back[t] @ weight
        return back.transpose(0, 1), None, None, dh, dc


class GruCore(Function):
    """r, z from x_t + h W + b; n = tanh(x_t + r·(h W + b)); h = n + z·(h − n). `mark` gets the gradients at h W + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mark: Tensor, weight: Tensor, bias: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        gates = x.transpose(0, 1).contiguous()  # (T, B, 3H)
        places, width, turned = len(gates), h.shape[1], weight.t()
        mapped = torch.empty_like(gates)
        output = x.new_empty(places + 1, len(h), width)
        output[0] = h
        for t in range(places):
            torch.addmm(bias, output[t], turned, out=mapped[t])
            gates[t, :, : 2 * width].add_(mapped[t, :, : 2 * width]).sigmoid_()
            r, z, n = gates[t].chunk(3, 1)
            n.addcmul_(r, mapped[t, :, 2 * width :]).tanh_()
            torch.lerp(n, output[t], z, out=output[t + 1])
        ctx.save_for_backward(gates, mapped, output, weight)
        return output[1:].transpose(0, 1), output[places].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, dh: Tensor) -> tuple[Tensor | None, ...]:
        gates, mapped, output, weight = ctx.saved_tensors
        width = output.shape[2]
        r, z, n = gates.chunk(3, 2)
        at_n, at_z = (1 - z) * (1 - n * n), (output[:-1] - n) * z * (1 - z)
        at_r = mapped[:, :, 2 * width :] * r * (1 - r)
        at_x, at_h, given = torch.empty_like(gates), torch.empty_like(gates), grad.transpose(0, 1)
        for t in range(len(gates) - 1, -1, -1):
            dh = dh + given[t]
            new = torch.mul(dh, at_n[t], out=at_x[t, :, 2 * width :])
            torch.mul(new, at_r[t], out=at_x[t, :, :width])
            torch.mul(dh, at_z[t], out=at_x[t, :, width : 2 * width])
            at_h[t, :, : 2 * width] = at_x[t, :, : 2 * width]
            torch.mul(new, r[t], out=at_h[t, :, 2 * width :])
            dh = torch.addmm(dh * z[t], at_h[t], weight)
        return at_x.transpose(0, 1), at_h.transpose(0, 1), None, None, dh


class PlainCore(Function):
    """h = tanh(x_t + h W + b), or with relu in its place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, tanh: bool) -> tuple[Tensor, ...]:
        output, turned = (x + bias).transpose(0, 1).contiguous(), weight.t()
        for t in range(len(output)):
            h = output[t].addmm_(h, turned)
            h.tanh_() if tanh else h.relu_()
        ctx.save_for_backward(output, weight)
        ctx.tanh = tanh
        return output.transpose(0, 1), h.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, dh: Tensor) -> tuple[Tensor | None, ...]:
        output, weight = ctx.saved_tensors
        slope = 1 - output * output if ctx.tanh else (output > 0).to(output.dtype)
        back, given = torch.empty_like(output), grad.transpose(0, 1)
        for t in range(len(output) - 1, -1, -1):
            dh = torch.mul(dh + given[t], slope[t], out=back[t]) @ weight
        return back.transpose(0, 1), None, None, dh, None


CORES: tuple[type[Function], ...] = (LstmCore, GruCore, PlainCore)
