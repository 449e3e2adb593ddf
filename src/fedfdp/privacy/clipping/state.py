"""What a model and its loss keep beside weights and buffers. It must not change from one record, or pass, to the next.

Where records go one by one, it could carry one record into the gradient of another. Along a proven pass it could not:
every number that enters is compared there.
"""

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import digests, slots_of
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.modules import named_layers

State = dict[str, str]  # a digest for each attribute and class of each layer, and for the loss
UNREAD = "unread"
_COUNTED_ELSEWHERE = frozenset({"_parameters", "_buffers", "_modules", "training"})
_PUT_BACK = (int, float, complex)  # of a layer's attributes, by `undo.py`; so are the numbers in tensors
_COUNTED_ELSEWHERE |= {"_flat_weights", "_flat_weight_refs"}  # the weights of a recurrent layer once more


def state_of(job: Job) -> State:
    """Digests of the state now, by place; without what `undo.py` puts back after every pass."""
    kept: dict[str, object] = {"loss": job.loss_fn}
    for name, layer in named_layers(job.model):  # also those that a pass has added
        start = f"model.{name}".rstrip(".")
        held = {own: v for own, v in vars(layer).items() if not isinstance(v, Tensor) and type(v) not in _PUT_BACK}
        kept |= {f"{start}.{own}": v for own, v in {**held, **slots_of(layer)}.items() if own not in _COUNTED_ELSEWHERE}
        for own, tensor in {**vars(layer), **layer._parameters, **layer._buffers}.items():
            if isinstance(tensor, Tensor):
                kept[f"{start}.{own}"] = _attached(tensor)
        kept[f"{start}.training"] = layer.training
        kept[f"{start} ({type(layer).__name__})"] = type(layer)
    found, unread = digests(kept, job.own)
    return {**found, UNREAD: unread}


def _attached(tensor: Tensor) -> list[object]:
    """What a tensor carries beside its numbers."""
    attributes = {name: value for name, value in vars(tensor).items() if not name.startswith("_fedfdp")}
    return [attributes, tensor.grad if tensor.is_leaf else None]


class Unchanged:
    """What a model holds before the first record of several. It must be the same before every further one."""

    def __init__(self, job: Job, state: State | None) -> None:
        """A pass that ended early may have left its records somewhere: the state is compared at once."""
        self._job, self._state = job, state
        self._weights = [(name, weight, weight.detach().clone()) for name, weight in job.model.named_parameters()]
        check_state(job, state)

    def check(self) -> None:
        """Raises where a pass has changed the state or a parameter: nothing of any record is released then."""
        for name, weight, copy in self._weights:
            given = weight.grad is not None and not weight.requires_grad
            if given or not _same(weight.detach(), copy):
                weight.data.copy_(copy)
                raise _refusal(f"model.{name}", "set it before training")
        check_state(self._job, self._state)


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether the numbers are the same; NaN is no change where there was NaN."""
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())


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
