"""What a model and its loss keep beside weights and buffers. It must not change from one record, or pass, to the next.

Where records go one by one, it could carry one record into the gradient of another. Along a proven pass it could not:
every number that enters is compared there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import digests
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.modules import named_layers

State = dict[str, str]  # a digest for each attribute and class of each layer, and for the loss
UNREAD = "unread"
_COUNTED_ELSEWHERE = frozenset({"_parameters", "_buffers", "_modules", "training"})
_COUNTED_ELSEWHERE |= {"_flat_weights", "_flat_weight_refs"}  # the weights of a recurrent layer once more


def state_of(job: Job) -> State:
    """Digests of the state now, by place; without what `undo.py` puts back after every pass."""
    kept: dict[str, object] = {"loss": job.loss_fn}
    for name, layer in named_layers(job.model):  # also those that a pass has added
        start = f"model.{name}".rstrip(".")
        for own, value in vars(layer).items():
            if own not in _COUNTED_ELSEWHERE and not isinstance(value, (int, float, complex, Tensor)):
                kept[f"{start}.{own}"] = value
        kept[f"{start}.training"] = layer.training
        kept[f"{start} ({type(layer).__name__})"] = type(layer)
    found, unread = digests(kept, job.own)
    return {**found, UNREAD: unread}


@contextmanager
def unchanged(job: Job, state: State | None) -> Iterator[None]:
    """Raises where a pass within it changes the state or a parameter: nothing of that pass is released then."""
    before = [(name, parameter, parameter.detach().clone()) for name, parameter in job.model.named_parameters()]
    yield
    for name, parameter, copy in before:
        if not torch.equal(parameter.detach().nan_to_num(), copy.nan_to_num()) or (
            parameter.grad is not None and not parameter.requires_grad
        ):
            parameter.data.copy_(copy)
            raise _refusal(f"model.{name}", "set it before training")
    check_state(job, state)


def check_state(job: Job, state: State | None) -> None:
    """Raises where the state is no longer this one."""
    if state is None:
        return
    now = state_of(job)
    if now[UNREAD]:
        allowed = "cannot be read, and records would reach each other through what it keeps"
        raise SettingError("model", now[UNREAD], allowed, "keep it out of the model and its loss")
    for place in {**state, **now}:
        if state.get(place) != now.get(place):
            raise _refusal(place, "keep it in a buffer, or out of the forward pass")


def _refusal(place: str, fix: str) -> SettingError:
    return SettingError(place, "changed", "the forward pass changes it: records would reach each other through it", fix)
