"""Many clients in one pass: each gets its own batch, its own noise, its own sum, whatever a method does with them."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.algorithms.base import Algorithm, Broadcast, Client, LossQuery, Upload
from fedfdp.core import weights as w
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine, Request
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Floats, Key, Randomness, Seeded
from fedfdp.privacy.noise.secure import Secure

PRIVATE = fedfdp.DPSGD(
    delta=1e-5,
    epsilon=50.0,
    sigma=1.0,
    q=0.3,
    clip=0.5,
    accountant="rdp",
    budgets={"c1": 0.01, "c4": 0.01},
    sigma_loss=5.0,
)


@dataclass(frozen=True, kw_only=True)
class InAnyOrder(Algorithm):
    """Uploads the sum of its batches' gradients, asked for in an order of its own."""

    order: tuple[int, ...] = (0, 1, 2)

    name: ClassVar[str] = "in_any_order"

    def joint_event(self, privacy):
        return privacy.event(losses=1, counts=2)

    def local(self, broadcast: Broadcast, memory: Any, client: Client) -> tuple[Upload, Any]:
        batches, total = list(self.batches(broadcast, client)), w.zeros_like(broadcast.weights)
        coefficient = self.coefficient(broadcast, client.privacy)
        for k in self.order:
            asked = {"loss": LossQuery(2.0, count=True), "count_norms": True} if k == 0 else {}
            w.add_(total, batches[k].release(broadcast.weights, coefficient=coefficient, **asked).gradient)
            if client.name == os.environ.get("LOST_ON_THE_WAY"):
                raise RuntimeError("lost on the way")
        return Upload(client.name, client.records, total), memory


class Watched:
    """Notes what is drawn, and gives it on."""

    def __init__(self, source: Randomness) -> None:
        self.source, self.repeatable = source, source.repeatable
        self.drawn: list[Key] = []

    def noised_(self, sums: Tensor, keys: Sequence[Key], **settings: Any) -> Tensor:
        self.drawn += keys
        return self.source.noised_(sums, keys, **settings)

    def noised(self, value: float, key: Key, **settings: Any) -> float:
        self.drawn.append(key)
        return self.source.noised(value, key, **settings)

    def uniform(self, count: int, key: Key) -> Floats:
        return self.source.uniform(count, key)

    def state(self, key: Key) -> Tensor:
        return self.source.state(key)


def holders() -> Federation:
    chance = torch.Generator().manual_seed(0)
    return Federation.from_clients(
        {f"c{i}": (torch.randn(30 + i, 6, generator=chance), torch.arange(30 + i) % 3) for i in range(6)}
    )


def engine(method: Algorithm, source: Any, *, fused: bool = True, federation: Federation | None = None) -> LocalEngine:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 60), nn.Tanh(), nn.Linear(60, 3))
    federation = federation or holders()
    budgets = {client.name: PRIVATE.budget(client.name) for client in federation.clients}
    book = LedgerBook.open(None, data="d", config="c", budgets=budgets, delta=1e-5, accountant="rdp")
    learner = Learner(model, cross_entropy)
    return LocalEngine(federation, learner, method, privacy=PRIVATE, randomness=source, book=book, fused=fused)


def uploads(run: LocalEngine, round: int = 0, into: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    found = {} if into is None else into
    for upload, _ in run.round(Broadcast(round, run.learner.initial()), {}):
        found[upload.client] = upload.update.vectors[0].clone()
    return found


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2), (0,)])
@pytest.mark.usefixtures("shared_noise")
def test_together_and_alone_release_the_same(order):
    method = InAnyOrder(local_steps=3, order=order)
    together, alone = engine(method, Seeded(1)), engine(method, Seeded(1), fused=False)
    for round in (0, 1):
        found, right = uploads(together, round), uploads(alone, round)
        assert list(found) == list(right) == ["c0", "c2", "c3", "c5"]
        for name, vector in right.items():
            torch.testing.assert_close(found[name], vector, rtol=1e-5, atol=1e-6)
    assert together.unable == {"c1", "c4"}


@pytest.mark.parametrize("fused", [True, False])
def test_no_noise_is_drawn_twice_or_for_who_cannot_pay(fused):
    source = Watched(Seeded(1))
    run = engine(InAnyOrder(local_steps=3, order=(2, 0, 1)), source, fused=fused)
    for round in range(3):
        uploads(run, round)
    assert set(Counter(source.drawn).values()) == {1}
    assert {key.client for key in source.drawn} == {"c0", "c2", "c3", "c5"}
    assert len(source.drawn) == 3 * 4 * (3 + 3)  # three gradients, one loss and two counts


def test_a_round_that_broke_off_is_repeated_with_the_same_noise_or_paid_again_with_new(monkeypatch):
    """With a seed the repeated answer is the same bytes and free; from entropy it is another attempt."""
    whole = uploads(engine(InAnyOrder(local_steps=3), Seeded(1)))
    for source in (Seeded(1), Secure()):
        run = engine(InAnyOrder(local_steps=3), source)
        monkeypatch.setenv("LOST_ON_THE_WAY", "c3")
        broken: dict[str, Tensor] = {}
        with pytest.raises(RuntimeError, match="lost on the way"):
            uploads(run, into=broken)
        before = run.book.charged()
        monkeypatch.delenv("LOST_ON_THE_WAY")
        again = uploads(run)
        assert list(broken) == ["c0", "c2"]
        if source.repeatable:
            assert all(torch.equal(vector, again[name]) for name, vector in broken.items())
            assert all(torch.equal(vector, again[name]) for name, vector in whole.items())
            assert run.book.charged() == before
        else:
            assert run.book.charged() == 2 * before
            # On a grid a few weights meet by chance, about one in 10³.
            assert all((vector != again[name]).double().mean() > 0.95 for name, vector in broken.items())


def test_persons_are_never_computed_as_records():
    """Whatever a federation calls its unit: a client whose records are of persons is not part of a common pass."""
    chance = torch.Generator().manual_seed(0)
    clients = {name: (torch.randn(60, 6, generator=chance), torch.arange(60) % 3) for name in ("c0", "c2")}
    units = {name: [f"{name}-{i // 4}" for i in range(60)] for name in clients}
    federation = Federation.from_clients(clients, units=units)
    method = InAnyOrder(local_steps=3)
    right = uploads(engine(method, Seeded(1), federation=federation))
    found = uploads(engine(method, Seeded(1), federation=replace(federation, unit="record")))
    for name, vector in right.items():
        assert torch.equal(found[name], vector)


@dataclass(frozen=True)
class Hidden:
    """A memory that does not show all it holds."""

    seen: float
    secret: float = field(default=0.0, repr=False)


@dataclass(frozen=True, slots=True)
class Slim:
    seen: float = 0.0


def test_a_request_is_known_by_all_that_a_client_remembers():
    request = Request(Broadcast(0, {"w": torch.ones(2)}), (PRIVATE.event(),), "method")
    memories = [Hidden(1.0, 2.0), Hidden(1.0, 3.0), Slim(), Slim(-0.0), Slim(1.0)]
    digests = [request.digest(memory, "records") for memory in memories]
    assert len(set(digests)) == len(memories)
    assert [request.digest(memory, "records") for memory in memories] == digests
    assert request.digest(Hidden(1, 2.0), "records") == digests[0]  # as it comes back from bytes
    again = Request(Broadcast(0, {"w": torch.ones(2)}), (), "method")
    assert [again.digest(memory, "records") for memory in memories] == digests


def test_a_request_is_known_by_broadcast_by_how_it_is_computed_and_by_the_records():
    def of(weight: float = 1.0, computed: str = "method", records: str = "records") -> str:
        return Request(Broadcast(0, {"w": torch.full((2,), weight)}), (), computed).digest(Slim(), records)

    assert len({of(), of(weight=1.0 + 2**-23), of(computed="another"), of(records="others")}) == 4
    assert of() == of()


class HiddenDropout(nn.Module):
    """Draws random numbers without a layer that tells."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(nn.functional.dropout(x, 0.5, self.training))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_computed_a_second_time_draws_from_its_key_too(order):
    """A repeated round is free because it is the same to the last bit: nothing in it may come from elsewhere."""
    found = []
    for seed in (1, 2):
        run = engine(InAnyOrder(local_steps=3, order=order), Seeded(1))
        torch.manual_seed(0)
        run.learner = Learner(HiddenDropout(), cross_entropy)
        torch.manual_seed(seed)
        found.append(uploads(run))
    assert all(torch.equal(vector, found[1][name]) for name, vector in found[0].items())


def test_a_client_that_drew_nobody_has_no_loss_to_watch():
    chance = torch.Generator().manual_seed(0)
    lonely = {f"c{i}": (torch.randn(1, 6, generator=chance), torch.tensor([i % 3])) for i in range(6)}
    run = engine(
        fedfdp.FedAvg(lr=0.1), Seeded(1), federation=Federation.from_clients(lonely, test_fraction=0.0, classes=3)
    )
    found = []
    for round in range(10):
        list(run.round(Broadcast(round, run.learner.initial()), {}, watch=True))
        found += run.local_losses.values()
    assert 0 < len(found) < 40  # four can pay, and each draws its record with probability 0.3
    assert all(math.isfinite(loss) for loss in found)
