"""A method may keep, return and ask with plain dicts of tensors: it gives the bits of one that keeps to `Weights`."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import fedfdp
from fedfdp.algorithms.base import Algorithm, Broadcast, Client, LossQuery, ServerState, Upload
from fedfdp.core import weights as w
from fedfdp.core.errors import DataError
from fedfdp.core.records import Weights, from_bytes, to_bytes
from fedfdp.engines.flower.checks import most_bytes, read
from fedfdp.models import build
from fedfdp.privacy.accounting import Event


@dataclass(frozen=True)
class Velocity:
    v: Weights = field(default_factory=Weights)


@dataclass(frozen=True)
class VelocityByName:
    v: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent(Upload):
    extra: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Momentum(Algorithm):
    """FedAvg with momentum that asks for the loss after a step, too."""

    name: ClassVar[str] = "momentum"
    Memory: ClassVar[type] = Velocity

    def joint_event(self, privacy: Any) -> Event:
        return privacy.event(losses=1)

    def events(self, broadcast: Any, privacy: Any) -> tuple[Event, ...]:
        return (replace(self.joint_event(privacy), count=self.private_steps(broadcast, privacy)),)

    def local(self, broadcast: Broadcast, memory: Any, client: Client) -> tuple[Upload, Any]:
        start, zero = broadcast.weights, w.zeros_like(broadcast.weights)
        velocity, update = memory.v or zero, zero
        for batch in self.batches(broadcast, client):
            here = self.plus(start, update, 1.0)
            query = LossQuery(2.0, at=lambda gradient, here=here: self.plus(here, gradient, -0.1))
            released = batch.release(here, coefficient=self.coefficient(broadcast, client.privacy), loss=query)
            velocity = self.plus(released.gradient, velocity, 0.5)
            update = self.plus(update, velocity, -self.lr)
        return Upload(client.name, client.records, self.plus(update, update, 0.0)), type(memory)(velocity)

    def aggregate(self, state: ServerState, uploads: Iterable[Upload]) -> ServerState:
        new = super().aggregate(state, uploads)
        return replace(new, weights=self.plus(new.weights, new.weights, 0.0))

    def plus(self, left: Any, right: Any, scale: float) -> Any:
        return w.add(left, right, scale=scale)


@dataclass(frozen=True, kw_only=True)
class ByName(Momentum):
    """The same with dicts wherever weights are made."""

    name: ClassVar[str] = "by_name"
    Memory: ClassVar[type] = VelocityByName

    def plus(self, left: Any, right: Any, scale: float) -> dict[str, Tensor]:
        return {name: torch.add(tensor, right[name], alpha=scale) for name, tensor in left.items()}


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("more", [{}, {"server": fedfdp.ServerOptimizer(optimizer="adam", lr=0.1, average=0.5)}])
def test_the_same_bits_and_resumed_from_disk(digits, shared_noise, tmp_path, private, more):
    def run(method: Algorithm, name: str, **how: Any) -> list[Tensor]:
        privacy = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, q=0.2, clip=0.5, sigma_loss=5.0) if private else None
        model = build("mlp", input_shape=digits.input_shape, outputs=10, seed=1)
        done = fedfdp.train(
            model, digits, algorithm=method, privacy=privacy, rounds=4, out=tmp_path / name, **more, **how
        )
        return list(done.model.state_dict().values())

    def interrupt(update: Any) -> None:
        if update.step.round == 2:
            raise KeyboardInterrupt

    expected = run(Momentum(lr=0.3, local_steps=2), "weights")
    found = run(ByName(lr=0.3, local_steps=2), "dicts")
    with pytest.raises(KeyboardInterrupt):
        run(ByName(lr=0.3, local_steps=2), "again", on_update=interrupt)
    resumed = run(ByName(lr=0.3, local_steps=2), "again", resume=True)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(expected, found, resumed, strict=True))


def test_a_field_of_either_type_is_checked_as_weights():
    template = Weights.of({"a": torch.zeros(2, 3), "b": torch.zeros(3)})
    update = w.add(template, {name: torch.tensor(2.0) for name in "ab"})
    sent = Sent("x", 3, update, dict(update))
    again = read(Sent, to_bytes(sent), template)
    assert (type(again.update), type(again.extra)) == (Weights, dict)
    assert again.update == again.extra == update
    assert most_bytes(Sent, template) - most_bytes(Upload, template) == 2 * 9 * 4
    assert from_bytes(Sent, to_bytes(replace(sent, update=dict(update)))).update == update
    for extra in (
        {"a": torch.zeros(2, 3)},
        {**update, "b": torch.zeros(4)},
        {**update, "b": torch.full((3,), torch.nan)},
    ):
        with pytest.raises(DataError, match=r"Sent\.extra"):
            read(Sent, to_bytes(replace(sent, extra=extra)), template)
