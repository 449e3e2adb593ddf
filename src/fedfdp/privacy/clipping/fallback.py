"""Per-sample gradients of any model, each record as a batch of its own: torch.func, or a loop where torch.func cannot.

Slower than the rules, never wrong about which record a gradient belongs to. A record meets no other one within a pass;
that none is left behind for the next, state.py checks.
"""

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.fast import Job, buffers_kept, one_loss_a_record
from fedfdp.privacy.clipping.known import UNWRITTEN
from fedfdp.privacy.clipping.watch import name_of


class _Clean(TorchFunctionMode):
    """New memory holds zeros, not what other records left there.

    Under torch.func nothing reaches past a tensor into its memory: records are kept apart above it only.
    """

    def __init__(self, *, batched: bool = False) -> None:
        super().__init__()
        self._batched = batched

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = name_of(func)
        if self._batched and name in _INTO_MEMORY:
            raise RuntimeError(f"{name} reaches past the record")
        result = func(*args, **(kwargs or {}))
        return result.zero_() if name in UNWRITTEN and isinstance(result, Tensor) else result


_INTO_MEMORY = {"set_", "data=", "resize_", "resize_as_", "as_strided", "as_strided_", "untyped_storage"}


def vmap_pass(job: Job, x: Tensor, y: Tensor) -> tuple[Tensor, list[Contribution]]:
    """All records at once through torch.func's vectorised gradient."""
    buffers = {name: buffer.clone() for name, buffer in job.model.named_buffers()}

    def loss(weights: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        output = functional_call(job.model, {**weights, **buffers}, (record[None],))
        return one_loss_a_record(job.loss_fn(output, target[None]), 1)[0]

    weights = {name: parameter.detach() for name, parameter in job.params.items()}
    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    with buffers_kept(job.layers), warnings.catch_warnings(), _Clean(batched=True):
        # vmap runs operations without a batched form one by one, which the log has said
        warnings.filterwarnings("ignore", message="There is a performance drop")
        grads, losses = each(weights, x.detach(), y)
    return losses.detach(), [Stored(name, rows.detach()) for name, rows in grads.items()]


def _with_draws_of_their_own(records: int) -> Iterator[int]:
    """The records' numbers; before each, torch, numpy and Python draw from a seed of the record's own.

    A model that sets a seed by one record would otherwise reach the draws of the next.
    """
    seeds = torch.randint(2**31, (records,)).tolist()
    before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    try:
        for i, seed in enumerate(seeds):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield i
    finally:
        torch.default_generator.set_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def alone_losses(job: Job, x: Tensor, y: Tensor) -> Tensor:
    """One loss per record, each in a pass of its own."""
    losses = []
    for i in _with_draws_of_their_own(len(x)):
        with buffers_kept(job.layers), torch.no_grad(), _Clean():
            losses.append(one_loss_a_record(job.loss_fn(job.model(x[i : i + 1].clone()), y[i : i + 1].clone()), 1))
    return torch.cat(losses)


def loop_pass(job: Job, x: Tensor, y: Tensor) -> tuple[Tensor, list[Contribution]]:
    """Record by record through plain autograd: works for every model that trains at all."""
    stores = {name: torch.zeros(len(x), *p.shape, dtype=p.dtype, device=p.device) for name, p in job.params.items()}
    losses = []
    for i in _with_draws_of_their_own(len(x)):
        weights = {name: parameter.detach().requires_grad_() for name, parameter in job.params.items()}
        buffers = {name: buffer.clone() for name, buffer in job.model.named_buffers()}
        with buffers_kept(job.layers), torch.enable_grad(), _Clean():
            output = functional_call(job.model, {**weights, **buffers}, (x[i : i + 1].detach().clone(),))
            loss = one_loss_a_record(job.loss_fn(output, y[i : i + 1].clone()), 1)[0]
        losses.append(loss.detach())
        if loss.requires_grad:
            grads = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            for store, grad in zip(stores.values(), grads, strict=True):
                if grad is not None:
                    store[i] = grad
    return torch.stack(losses), [Stored(name, rows) for name, rows in stores.items()]
