"""What a model and its loss keep beside weights and buffers. It must not change from one record, or pass, to the next.

Where records go one by one, it could carry one record into the gradient of another. Along a proven pass it could not:
every number that enters is compared there.
"""

import functools
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import digests, slots_of
from fedfdp.core.identity.surroundings import home, installed, surrounding
from fedfdp.privacy.clipping.job import Job, LossFn
from fedfdp.privacy.clipping.modules import named_layers
from fedfdp.privacy.clipping.undo import Lies, bits

State = dict[str, str]  # a digest for each attribute and class of each layer, and for the loss
UNREAD, LOSS = "unread", "loss"
COPIED = 2**16  # numbers; of larger weights no copies are made: together they take as much memory as the model
_COUNTED_ELSEWHERE = frozenset({"_parameters", "_buffers", "_modules", "training"})
_spoilt: list[str] = []  # places beyond a model that runs of this process have changed
_PUT_BACK = (int, float, complex)  # of a layer's attributes, by `undo.py`; so are the numbers in tensors
_COUNTED_ELSEWHERE |= {"_flat_weights", "_flat_weight_refs"}  # the weights of a recurrent layer once more


def state_of(job: Job) -> State:
    """Digests of the state now, by place; without what `undo.py` puts back after every pass."""
    kept: dict[str, object] = {LOSS: job.loss_fn}
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

    def __enter__(self) -> "Unchanged":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:  # nor may a pass that fails leave a record in a weight
            self._weights.changed()

    def check(self) -> None:
        """Raises where a pass has changed the state or a parameter: nothing of any record is released then."""
        for name in self._weights.changed() or self._weights.with_gradients():
            raise refusal(f"model.{name}", "set it before training")
        check_state(self._job, self._state)


class Weights:
    """A model's parameters as they are now: the objects, how they lie in memory, and their numbers.

    Of small ones a copy is kept, of large ones a digest.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._before = model, _placed(model)
        weights = {id(weight): weight for _, _, weight in self._before.values()}
        self._lying = {
            key: (weight, weight.data, Lies.of(weight), _kept(weight.data)) for key, weight in weights.items()
        }

    def changed(self) -> list[str]:
        """The names of those that are not as before. What a record left goes: they are put back, or become NaN."""
        other = {key for key, known in self._lying.items() if not _put_back(*known)}
        now = _placed(self._model)
        added = {place: known for place, known in now.items() if place not in self._before}
        gone = {
            place: known for place, known in self._before.items() if place not in now or now[place][2] is not known[2]
        }
        for (_, own), (_, layer, _) in added.items():
            del layer._parameters[own]
        for (_, own), (_, layer, weight) in gone.items():
            layer._parameters[own] = weight
        changed = {place: known for place, known in self._before.items() if id(known[2]) in other}
        return [name for name, _, _ in {**added, **gone, **changed}.values()]

    def with_gradients(self) -> list[str]:
        """The names of those that are not trained and have a gradient."""
        return [name for name, _, w in self._before.values() if w.grad is not None and not w.requires_grad]


Placed = dict[tuple[int, str], tuple[str, nn.Module, nn.Parameter]]


def _placed(model: nn.Module) -> Placed:
    """Each parameter by its layer and its name there, with its whole name."""
    return {
        (id(layer), own): (f"{start}.{own}" if start else own, layer, weight)
        for start, layer in named_layers(model)
        for own, weight in layer._parameters.items()
        if weight is not None
    }


def _put_back(weight: Tensor, lying: Tensor, as_before: Lies, numbers: Tensor | str) -> bool:
    """Whether the weight was as before; if not, it is afterwards, or NaN where there is no copy."""
    same = as_before == Lies.of(weight)
    if not same:
        weight.data = lying
        weight.requires_grad_(as_before.requires_grad)
    if isinstance(numbers, Tensor) and not torch.equal(bits(lying), bits(numbers)):
        lying.copy_(numbers)
        return False
    if isinstance(numbers, str) and _digest(lying) != numbers:
        lying.fill_(torch.nan)
        return False
    return same


def _kept(weight: Tensor) -> Tensor | str:
    return weight.clone() if weight.numel() <= COPIED else _digest(weight)


def _digest(weight: Tensor) -> str:
    found = hashlib.sha256(f"{weight.shape} {weight.dtype}".encode())
    for part in torch.split(bits(weight).reshape(-1), 2**20):
        found.update(part.contiguous().cpu().view(torch.uint8).numpy().data)
    return found.hexdigest()


def check_state(job: Job, state: State | None, *, of_records: bool = True) -> None:
    """Raises where the state is no longer this one; `of_records`: what has changed it may be of real ones."""
    if state is None:
        return
    now = state_of(job)
    if now[UNREAD]:
        allowed = "cannot be read, and records would reach each other through what it keeps"
        raise SettingError("model", now[UNREAD], allowed, "keep it out of the model and its loss")
    for place in _different(state, now):
        raise refused(place) if of_records else refusal(place)


def refused(place: str) -> SettingError:
    """The refusal of what records have changed. Beyond the model it holds for the process: later runs would find it."""
    if outlives(place):
        _spoilt.append(place)
    return refusal(place)


def require_unspoilt(job: Job) -> None:
    """Raises if an earlier run in this process has left something in a place that this one may reach too.

    Code of installed packages does not reach what a loss of the user's keeps.
    """
    for place in _spoilt:
        if place == LOSS and not own_code(job):
            continue
        allowed = "an earlier run in this process has changed it: what it keeps may be of records"
        raise SettingError(place, "changed", allowed, "keep it out of the loss and of classes, and start a new process")


def own_code(job: Job) -> bool:
    """Whether the loss, a layer, or a function that is put on a layer, is code of the user's."""
    things: list[object] = [job.loss_fn, *_global_forward_hooks.values(), *_global_forward_pre_hooks.values()]
    for _, layer in named_layers(job.model):
        held = vars(layer).values()
        hooks = (hook for value in held if isinstance(value, dict) for hook in value.values())
        things += [type(layer), *(thing for thing in (*held, *hooks) if callable(thing) and thing is not layer)]
    homes = {home(str(getattr(part, "__module__", ""))) for thing in things for part in _parts(thing)}
    return not all(surrounding(where) or installed(where) for where in homes)


def _parts(thing: object) -> Iterator[object]:
    """A function or class, and the functions that an object or a partial passes its calls on to."""
    yield thing
    if isinstance(thing, functools.partial):
        held: Iterable[object] = (thing.func, *thing.args, *thing.keywords.values())
    else:
        held = getattr(thing, "__dict__", {}).values() if not isinstance(thing, (type, nn.Module)) else ()
    for part in held:
        if callable(part) and part is not thing:
            yield from _parts(part)


@contextmanager
def spoilt_by_plain_run(model: nn.Module, loss_fn: LossFn) -> Iterator[None]:
    """Without privacy a loss or a class may keep what it likes; but no private run that can reach it may follow."""
    job = Job(model, loss_fn, {})
    before = state_of(job)
    try:
        yield
    finally:
        _spoilt.extend(place for place in changed_places(job, before) if outlives(place))


def outlives(place: str) -> bool:
    """Whether it is a place that other models have too: the loss, or a class with all that it names."""
    return place == LOSS or place.endswith(")")


def changed_places(job: Job, state: State) -> list[str]:
    """Where the state is no longer this one, as far as it can be read."""
    return [place for place in _different(state, state_of(job)) if place != UNREAD]


def _different(one: State, other: State) -> list[str]:
    return [place for place in {**one, **other} if one.get(place) != other.get(place)]


def refusal(place: str, fix: str = "keep it in a buffer, or out of the forward pass") -> SettingError:
    return SettingError(place, "changed", "the forward pass changes it: records would reach each other through it", fix)
