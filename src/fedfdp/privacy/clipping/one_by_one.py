"""Per-record gradients of any model, each record as a batch of its own: by torch.func, or a loop where that cannot.

Slower than the rules, and never wrong about which record a gradient belongs to: a record meets no other one within a
pass. state.py checks that none is left behind for the next.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.overrides import TorchFunctionMode

from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Inputs, arguments_of, call, like, parts_of
from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.draws import SEEDED, Draws, has_generator
from fedfdp.privacy.clipping.job import Job, one_loss_per_record
from fedfdp.privacy.clipping.proof.calls import Arguments, Function, Keywords, name_of
from fedfdp.privacy.clipping.proof.functions import METADATA, UNWRITTEN
from fedfdp.privacy.clipping.state import State, Unchanged
from fedfdp.privacy.clipping.undo import changes_undone

_INTO_MEMORY = {"set_", "data=", "resize_", "resize_as_", "as_strided", "as_strided_", "untyped_storage"}


class Clean(TorchFunctionMode):
    """New memory holds zeros, or NaN where it is not asked for by name, not what other records left there.

    With `vectorised`, the draws of a pass under torch.func, functions that reach past a tensor into its memory are
    refused: there that memory holds all records. So are those that give no tensor, such as a text, which would show
    all records; and those that say themselves how they are vectorised: such a rule is given all records.
    """

    def __init__(self, *, vectorised: Draws | None = None) -> None:
        super().__init__()
        self._vectorised, self._before = vectorised, _filling()
        self._below = torch._C._len_torch_dispatch_stack()

    def __enter__(self) -> "Clean":
        self._before = _filling()
        _fill(max(self._before[0], 1), True)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        super().__exit__(kind, *error)  # type: ignore[no-untyped-call]
        mode, fills = _filling()
        _fill(*self._before)
        if kind is None and (mode == 0 or not fills):
            allowed = "a pass turns it off: memory would show it what other records left there"
            raise SettingError("torch.use_deterministic_algorithms", False, allowed, "leave it alone in the model")

    def __torch_function__(
        self, func: Function, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        name = name_of(func)
        if self._vectorised and torch._C._len_torch_dispatch_stack() != self._below:
            raise RuntimeError("a mode below torch's functions is given all records")
        if self._vectorised and (has_generator((args, kwargs)) or not self._vectorised.untouched):
            raise RuntimeError(SEEDED)
        if self._vectorised and name in _INTO_MEMORY:
            raise RuntimeError(f"{name} reaches past the record")
        if self._vectorised and (name.startswith("torch._ops.") or _has_a_rule(args)):
            raise RuntimeError(f"{name} is vectorised by a rule of its own")
        result = func(*args, **(kwargs or {}))
        if self._vectorised:
            self._vectorised.drawn()
        if self._vectorised and name not in METADATA and name != "__iter__" and not _only_tensors(result):
            raise RuntimeError(f"{name} makes something else of a record than a tensor")
        return result.zero_() if name in UNWRITTEN and isinstance(result, Tensor) else result


def _filling() -> tuple[int, bool]:
    """Whether torch fills what it takes from the system: it does in a deterministic mode, with this flag."""
    return torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]


def _fill(mode: int, fills: bool) -> None:
    torch.set_deterministic_debug_mode(mode)
    torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def _only_tensors(result: object) -> bool:
    if isinstance(result, (tuple, list)):
        return all(map(_only_tensors, result))
    return result is None or isinstance(result, Tensor)


def _has_a_rule(args: Arguments) -> bool:
    """Whether it is a function with a backward pass of its own that also has its own way to be vectorised."""
    kind, plain = args[0] if args else None, torch.autograd.Function
    return isinstance(kind, type) and issubclass(kind, plain) and kind.vmap is not plain.vmap


def vmap_pass(job: Job, x: Inputs, y: Tensor, state: State | None = None) -> tuple[Tensor, list[Contribution]]:
    """Losses and gradients of all records at once, through torch.func's vectorised gradient."""
    buffers = {name: buffer.clone() for name, buffer in job.model.named_buffers()}

    def loss(weights: dict[str, Tensor], record: tuple[Tensor, ...], target: Tensor) -> Tensor:
        alone = arguments_of(like(x, [part[None] for part in record]))
        output = functional_call(job.model, {**weights, **buffers}, *alone)
        return one_loss_per_record(job.loss_fn(output, target[None]), 1)[0]

    weights = {name: parameter.detach() for name, parameter in job.params.items()}
    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    draws = Draws(x.device)
    with Unchanged(job, state) as kept:
        with changes_undone(job.layers), warnings.catch_warnings(), draws, Clean(vectorised=draws):
            # vmap runs operations without a batched form in a loop. `plan.py` has logged that this model is slower.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            grads, losses = each(weights, parts_of(x.detach().clone()), y.clone())
        kept.check()
    if not draws.left_alone:
        raise RuntimeError(SEEDED)
    return losses.detach(), [Stored(name, rows.detach()) for name, rows in grads.items()]


def loop_pass(job: Job, x: Inputs, y: Tensor, state: State | None = None) -> tuple[Tensor, list[Contribution]]:
    """Losses and gradients of all records, each in a pass of its own."""
    stores = {name: torch.zeros(len(x), *p.shape, dtype=p.dtype, device=p.device) for name, p in job.params.items()}

    def store(record: int, grads: dict[str, Tensor]) -> None:
        for name, grad in grads.items():
            stores[name][record] = grad

    return alone(job, x, y, store, state), [Stored(name, rows) for name, rows in stores.items()]


def alone(
    job: Job, x: Inputs, y: Tensor, take: Callable[[int, dict[str, Tensor]], None], state: State | None = None
) -> Tensor:
    """The losses record by record through plain autograd: works for every model that trains at all.

    `take` is given each record's number and gradients, which are gone before the next one's are computed. With `state`,
    what the model keeps must be that before every record.
    """
    losses = []
    with Unchanged(job, state) as kept:
        for i in with_draws_of_their_own(_seeds(len(x))):
            weights = {name: parameter.detach().requires_grad_() for name, parameter in job.params.items()}
            buffers = {name: buffer.clone() for name, buffer in job.model.named_buffers()}
            with changes_undone(job.layers), torch.enable_grad(), Clean():
                record = arguments_of(x[i : i + 1].detach().clone())
                output = functional_call(job.model, {**weights, **buffers}, *record)
                loss = one_loss_per_record(job.loss_fn(output, y[i : i + 1].clone()), 1)[0]
                grads = _gradients(loss, weights)  # within: a model may act in the backward pass, too
            losses.append(loss.detach())
            take(i, grads)
            del grads
            kept.check()
    return torch.stack(losses)


def _gradients(loss: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a loss by each of the weights; zeros where it does not depend on one."""
    unknown = [None] * len(weights)
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True) if loss.requires_grad else unknown
    return {
        name: torch.zeros_like(weight) if grad is None else grad.to_dense() if grad.is_sparse else grad.detach()
        for (name, weight), grad in zip(weights.items(), found, strict=True)
    }


def loop_losses(job: Job, x: Inputs, y: Tensor, state: State | None = None) -> Tensor:
    """One loss per record, each in a pass of its own."""
    losses = []
    with Unchanged(job, state) as kept:
        for i in with_draws_of_their_own(_seeds(len(x))):
            with changes_undone(job.layers), torch.no_grad(), Clean():
                output = call(job.model, x[i : i + 1].clone())
                losses.append(one_loss_per_record(job.loss_fn(output, y[i : i + 1].clone()), 1))
            kept.check()
    return torch.cat(losses)


def _seeds(records: int) -> list[int]:
    return torch.randint(2**31, (records,)).tolist()


def with_draws_of_their_own(seeds: Sequence[int]) -> Iterator[int]:
    """The records' numbers. Before each, torch, numpy and Python are seeded for that record.

    A model that sets a seed by one record would otherwise reach the draws of the next.
    """
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
