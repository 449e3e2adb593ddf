"""What a model and its loss keep beside weights and buffers: it must not change from one record, or pass, to the next.

Along a proven pass nothing of it matters, since every number that enters is compared. Where records go through one by
one, this is what could carry one record into the gradient of another.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedfdp.errors import SettingError
from fedfdp.identity import digests
from fedfdp.privacy.clipping.fast import Job

State = dict[str, str]  # a digest for each attribute and class of each layer, and for the loss
_COUNTED_ELSEWHERE = frozenset(
    {
        "_parameters",
        "_buffers",
        "_modules",
        "training",
        "_flat_weights",
        "_flat_weight_refs",
    }  # the last two: weights again
)


def state_of(job: Job) -> State:
    """The state now, by the place where it is kept."""
    kept: dict[str, object] = {"loss": job.loss_fn}
    for name, layer in job.layers:
        start = f"model.{name}".rstrip(".")
        kept |= {f"{start}.{own}": value for own, value in vars(layer).items() if own not in _COUNTED_ELSEWHERE}
        kept[f"{start} ({type(layer).__name__})"] = type(layer)
    return digests(kept, job.own)


@contextmanager
def unchanged(job: Job, state: State | None) -> Iterator[None]:
    """Raises where a pass leaves the state, or a trained weight, other than it was: nothing of it is released then."""
    before = {name: parameter.detach().clone() for name, parameter in job.params.items()}
    yield
    for name, parameter in job.params.items():
        if not torch.equal(parameter.detach().nan_to_num(), before[name].nan_to_num()):
            parameter.data.copy_(before[name])
            raise _refusal(f"model.{name}", "set it before training")
    check_state(job, state)


def check_state(job: Job, state: State | None) -> None:
    """Raises where the state is not this one any more."""
    if state is None:
        return
    now = state_of(job)
    for place in {**state, **now}:
        if state.get(place) != now.get(place):
            raise _refusal(place, "keep it in a buffer, or out of the forward pass")


def _refusal(place: str, fix: str) -> SettingError:
    return SettingError(place, "changed", "the forward pass changes it: records would reach each other through it", fix)
