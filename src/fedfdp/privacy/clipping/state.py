"""What a model and its loss keep beside weights and buffers. It must not change from one record, or pass, to the next.

Where records go one by one, it could carry one record into the gradient of another. Along a proven pass it could not:
every number that enters is compared there.
"""

import hashlib

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import digests, slots_of
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.modules import named_layers

State = dict[str, str]  # a digest for each attribute and class of each layer, and for the loss
UNREAD = "unread"
COPIED = 2**16  # numbers; of larger weights no copies are made: together they take as much memory as the model
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
        self._weights = Weights(job.model)
        check_state(job, state)

    def check(self) -> None:
        """Raises where a pass has changed the state or a parameter: nothing of any record is released then."""
        parameters = self._job.model.named_parameters()
        given = [name for name, weight in parameters if weight.grad is not None and not weight.requires_grad]
        for name in self._weights.changed() or given:
            raise _refusal(f"model.{name}", "set it before training")
        check_state(self._job, self._state)


class Weights:
    """The numbers of a model's parameters as they are now: copies of small ones, digests of large ones."""

    def __init__(self, model: nn.Module) -> None:
        self._before = [(name, weight, _kept(weight.detach())) for name, weight in model.named_parameters()]

    def changed(self) -> list[str]:
        """The names of those with other numbers. What a record left there goes: they are put back, or become NaN."""
        found = []
        for name, weight, before in self._before:
            if isinstance(before, Tensor):
                same = _same(weight.detach(), before)
            else:
                same = _digest(weight.detach()) == before
            if not same:
                weight.data.copy_(before if isinstance(before, Tensor) else torch.tensor(torch.nan))
                found.append(name)
        return found


def _kept(weight: Tensor) -> Tensor | str:
    return weight.clone() if weight.numel() <= COPIED else _digest(weight)


def _digest(weight: Tensor) -> str:
    found = hashlib.sha256(f"{weight.shape} {weight.dtype}".encode())
    for part in torch.split(weight.reshape(-1), 2**20):
        found.update(part.cpu().view(torch.uint8).numpy().data)
    return found.hexdigest()


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
