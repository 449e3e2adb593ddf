"""Nothing leaves a private client but through the private mechanism: every method, every field, shown on one record.

A client is played twice, with a canary record and without it; the noise is switched off and clipping is on.
`check` wants: (1) whatever a batch answers differs by no more than the sensitivity declared, is paid for and carries
noise; (2) with the batches' answers held equal, uploads and memories are equal to the bit: nothing else was read;
(3) with one step, each field of the upload differs by at most what follows from (1). A new method is included by being
registered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from fedfdp.algorithms import ALGORITHMS, Algorithm, FedAvg, FedFDP
from fedfdp.algorithms.base import LossQuery, Released, Upload
from fedfdp.core import weights as w
from fedfdp.core.errors import FedFDPError, SettingError
from fedfdp.core.records import digest
from fedfdp.data import Federation
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Floats, Key
from fedfdp.training.client import LocalClient
from rounds import population
from support import Given

CLIP, Q, N, CANARY, LR = 0.3, 0.5, 7, 2, 0.5
PRIVATE = DPSGD(delta=1e-5, epsilon=50.0, sigma=1.0, sigma_loss=2.0, sigma_count=3.0, q=Q, clip=CLIP, accountant="rdp")
SHARE = 1 / (Q * N)  # the divisor of every release
ROUNDING = 1 + 1e-5


# The two worlds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Without(Given):
    """Batches of every record but one."""

    def uniform(self, count: int, key: Key) -> Floats:
        draws = super().uniform(count, key)
        draws[CANARY] = 1.0
        return draws


def federation(canary: bool) -> Federation:
    """The canary is far from everything else; in the other world something dull stands in its place, never sampled."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(N, 4, generator=generator), torch.arange(N) % 3
    x[CANARY], y[CANARY] = (100.0, 2) if canary else (0.0, 0)
    other = torch.randn(9, 4, generator=generator), torch.arange(9) % 3
    return Federation.from_clients({"a": (x, y, x, y), "b": (*other, *other)}, classes=3)


def client(round: int, *, canary: bool, noise: float = 0.0) -> LocalClient:
    torch.manual_seed(0)
    learner = Learner(nn.Linear(4, 3), cross_entropy)
    randomness = Given(noise) if canary else Without(noise)
    data = federation(canary).clients[0]
    return LocalClient(data, learner, privacy=PRIVATE, randomness=randomness, round=round)


class Watched:
    """A client whose every answer is kept, with the question."""

    def __init__(self, inner: LocalClient) -> None:
        self.inner, self.kept = inner, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def batches(self, **how: Any) -> Iterator[Any]:
        return (_Kept(self, batch) for batch in self.inner.batches(**how))


@dataclass(frozen=True)
class _Kept:
    client: Watched
    batch: Any

    def release(self, weights: w.Weights, **question: Any) -> Released:
        answer = self.batch.release(weights, **question)
        kept = replace(answer, gradient=w.clone(answer.gradient))  # the method may change its own in place
        self.client.kept.append((weights, question, kept))
        return answer


class Replayed(Watched):
    """A client without the canary whose batches answer as they did with it; all else about it is its own."""

    def __init__(self, inner: LocalClient, kept: list[Any]) -> None:
        super().__init__(inner)
        self.kept = list(kept)

    def batches(self, **how: Any) -> Iterator[Any]:
        return (_Again(self.kept) for _ in range(how["steps"]))


@dataclass(frozen=True)
class _Again:
    kept: list[Any]

    def release(self, weights: w.Weights, **question: Any) -> Released:
        answer = self.kept.pop(0)[2]
        return replace(answer, gradient=w.clone(answer.gradient))


# The checker --------------------------------------------------------------------------------------------------------


def check(method: Algorithm, rounds: int = 3, **own: float) -> None:
    """Raises AssertionError where removing the canary shows in any other way than through the mechanism.

    `own` says of the fields that the method adds to its uploads how far one record may move each in a step.
    """
    state = method.init(client(0, canary=True).learner.initial(), population(federation(True)), PRIVATE)
    memory = method.memory()
    for round in range(rounds):
        broadcast = method.broadcast(state)
        watched = Watched(client(round, canary=True))
        upload, after = method.local(broadcast, memory, watched)
        check_paid(method, broadcast, watched)
        check_answers(watched, round)
        again, after_again = method.local(broadcast, memory, Replayed(client(round, canary=False), watched.kept))
        assert digest(upload) == digest(again), "the upload was made of more than what the batches released"
        assert digest(after) == digest(after_again), "the memory was made of more than what the batches released"
        if round == 0 and method.passes * method.private_steps(broadcast, PRIVATE) == 1:
            other, _ = method.local(broadcast, memory, client(round, canary=False))
            check_fields(upload, other, watched, own)
        state, memory = method.aggregate(state, iter([upload])), after


def check_paid(method: Algorithm, broadcast: Any, watched: Watched) -> None:
    """What was released is what was declared beforehand."""
    declared = sorted(e.sigmas for event in method.events(broadcast, PRIVATE) for e in [event] * event.count)
    assert sorted(event.sigmas for event in watched.released) == declared, "`events` declares something else"


def check_answers(watched: Watched, round: int) -> None:
    """Asked the same at the same weights, a client without the canary answers within the sensitivity of each part."""
    without = client(round, canary=False).batches(steps=len(watched.kept), epochs=None, batch_size=1)
    noisy = client(round, canary=True, noise=1.0).batches(steps=len(watched.kept), epochs=None, batch_size=1)
    for (weights, question, answer), other, third in zip(watched.kept, without, noisy, strict=True):
        loss: LossQuery | None = question.get("loss")
        if loss is not None and loss.at is not None:  # asked after the gradient was out: that is now a given
            question = {**question, "loss": replace(loss, at=lambda _, at=loss.at, g=answer.gradient: at(g))}
        bounds = {"gradient": question["coefficient"].clip * SHARE, "losses_within": SHARE, "norms_within": SHARE}
        bounds["loss"] = loss.bound * SHARE if loss is not None else 0.0
        here, noised = other.release(weights, **question), third.release(weights, **question)
        for name, bound in bounds.items():
            value = getattr(answer, name)
            if value is not None:
                assert distance(value, getattr(here, name)) <= bound * ROUNDING, f"{name} has a larger sensitivity"
                assert distance(value, getattr(noised, name)) > 0, f"{name} carries no noise"


def check_fields(upload: Any, other: Any, watched: Watched, own: dict[str, float]) -> None:
    """One step: each field moves by at most what its sensitivity allows."""
    ((_, question, _),) = watched.kept
    loss: LossQuery | None = question.get("loss")
    later, loss_clip = loss is not None and loss.at is not None, loss.bound if loss is not None else 0.0
    step = LR * CLIP * SHARE
    length = w.squared_norm(upload.update) ** 0.5
    allowed = {
        "update": step,
        "control_change": step / LR,
        "loss": float("inf") if later else loss_clip * SHARE,  # (1) has held fixed the gradient it was asked after
        "norms_within": SHARE,
        "squared_norm": step * (2 * length + step),
        **dict.fromkeys(("client", "records", "discount"), 0.0),
        **own,
    }
    for f in fields(upload):
        mine, others = getattr(upload, f.name), getattr(other, f.name)
        if mine is None and others is None:
            continue
        assert f.name in allowed, f"{f.name}: say in `check` how far one record may move it"
        assert distance(mine, others) <= allowed[f.name] * ROUNDING, f"{f.name} moves further than declared"


def distance(one: Any, other: Any) -> float:
    if isinstance(one, w.Weights):
        return w.squared_norm(w.subtract(one, other)) ** 0.5
    if isinstance(one, str):
        return float(one != other)
    assert not is_dataclass(one)
    return abs(one - other)


# Every method -------------------------------------------------------------------------------------------------------


def private_methods() -> Iterator[Algorithm]:
    for kind in ALGORITHMS.values():
        try:
            kind().check_privacy(PRIVATE)
        except SettingError:
            continue
        yield kind(lr=LR)
        yield kind(lr=LR, local_steps=3)


FORMS = [
    FedFDP(lr=LR, lam=0.5, coefficients=coefficients, loss_at=at, loss_bound=bound, clip_bound=clip)
    for coefficients in ("paper", "bounded", "automatic")
    for at, bound, clip in (("local", "mean", "fixed"), ("global", "quantile", "quantile"))
]


def title(method: Algorithm) -> str:
    changed = [getattr(method, f.name) for f in fields(method) if getattr(method, f.name) != f.default]
    return "-".join(map(str, [type(method).__name__, *changed]))


@pytest.mark.parametrize("method", [*private_methods(), *FORMS], ids=title)
def test_only_the_mechanism_tells_of_a_record(method):
    check(method)


def test_every_method_is_checked_but_those_that_refuse_privacy():
    assert {method.name for method in private_methods()} == set(ALGORITHMS) - {"fedfair"}


# Planted leaks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeakyUpload(Upload):
    loss: float


class RawLoss(FedAvg):
    """Uploads the loss of the first record, or of all of them, as it is."""

    Reply: ClassVar[type] = LeakyUpload

    def reply(self, here, update):
        client = here.client
        loss = float(client.learner.losses(here.broadcast.weights, *client.data.train.take()).mean())
        return LeakyUpload(client.name, client.records, update, loss), here.memory


class BatchSize(FedAvg):
    """Divides by the size of the batch, which is private."""

    def local(self, broadcast, memory, client):
        upload, memory = super().local(broadcast, memory, client)
        return replace(upload, update=w.multiply(upload.update, len(client.poisson(0)) / 4)), memory


class Remembers(FedAvg):
    """Keeps something raw for a later round."""

    def local(self, broadcast, memory, client):
        upload, _ = super().local(broadcast, memory, client)
        return upload, {"seen": client.data.train.take()[0].mean()}


class Underpaid(FedAvg):
    """Asks for a loss that `events` does not mention."""

    def local(self, broadcast, memory, client):
        (batch,) = self.batches(broadcast, client)
        coefficient = self.coefficient(broadcast, client.privacy)
        answer = batch.release(broadcast.weights, coefficient=coefficient, loss=LossQuery(1.0))
        return LeakyUpload(client.name, client.records, answer.gradient, answer.loss), memory


class Louder(FedAvg):
    """Sends an update ten times as sensitive as a step: private, but not what is declared."""

    def local(self, broadcast, memory, client):
        upload, memory = super().local(broadcast, memory, client)
        return replace(upload, update=w.multiply(upload.update, 10.0)), memory


@pytest.mark.parametrize(
    ("leaky", "caught"),
    [
        (RawLoss, "upload was made of more"),
        (BatchSize, "upload was made of more"),
        (Remembers, "memory was made of more"),
        (Underpaid, "declares something else"),
        (Louder, "update moves further"),
    ],
)
def test_a_planted_leak_is_caught(leaky, caught):
    with pytest.raises(AssertionError, match=caught):
        check(leaky(lr=LR))


def test_a_private_client_refuses_its_raw_loss_and_second_answers():
    private = client(0, canary=True)
    with pytest.raises(FedFDPError, match="not private"):
        private.loss(private.learner.initial())
    (batch,) = private.batches(steps=1, epochs=None, batch_size=1)
    coefficient = FedAvg().coefficient(None, PRIVATE)
    batch.release(private.learner.initial(), coefficient=coefficient)
    with pytest.raises(FedFDPError, match="answers once"):
        batch.release(private.learner.initial(), coefficient=coefficient)
