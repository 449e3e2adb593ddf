"""A person's records count as one: drawn together, clipped together, released together."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad

import fedfdp
from fedfdp.core.errors import DataError
from fedfdp.data import Federation
from fedfdp.data.shard import Persons
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy, squared_error
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import LocalClient

PRIVATE = DPSGD(delta=1e-5, epsilon=50.0, sigma=1.0, q=0.5, clip=0.3, accountant="rdp", sigma_loss=5.0)


class Everyone(Seeded):
    """Draws every person and adds no noise: what is released is the exact clipped sum."""

    def uniform(self, count, key):
        return np.zeros(count)

    def noised_(self, sums, keys, *, scale, divisors):
        return super().noised_(sums, keys, scale=0.0, divisors=divisors)

    def noised(self, value, key, *, scale, divisor):
        return value / divisor


def test_people_finds_each_ones_records():
    persons = Persons.of(torch.tensor([7, 3, 7, 9, 3, 7]))
    assert persons.counts.tolist() == [2, 3, 1]  # 3, 7, 9
    assert persons.positions(torch.tensor([0, 2])).tolist() == [1, 4, 3]
    assert persons.positions(torch.tensor([], dtype=torch.int64)).tolist() == []


def person_gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor, of_whom: list[int]) -> list[torch.Tensor]:
    """Each person's summed gradient by torch.func, record by record: another way to the same numbers."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    sums: dict[int, torch.Tensor] = {}
    for i, person in enumerate(of_whom):

        def loss(w: dict[str, torch.Tensor], i: int = i) -> torch.Tensor:
            return cross_entropy(functional_call(model, w, (x[i : i + 1],)), y[i : i + 1])[0]

        flat = torch.cat([g.flatten() for g in grad(loss)(weights).values()])
        sums[person] = sums.get(person, 0) + flat
    return [sums[person] for person in sorted(sums)]


@pytest.mark.parametrize("name", ["linear", "mlp", "small-cnn"])
def test_the_sum_is_that_of_persons_clipped_one_by_one(name):
    shape = (1, 12, 12) if name == "small-cnn" else (6,)
    generator = torch.Generator().manual_seed(0)
    of_whom = [0, 1, 1, 2, 2, 2, 3, 4, 4]
    x, y = torch.randn(9, *shape, generator=generator), torch.arange(9) % 3
    model = build(name, input_shape=shape, outputs=3, seed=0)
    learner, bound = Learner(model, cross_entropy), 0.5
    counts = torch.tensor([1, 2, 3, 1, 2])
    total = learner.clipped_by_person(learner.initial(), x, y, PlainClip(bound), counts)
    right = person_gradients(model, x, y, of_whom)
    norms = torch.stack([g.norm() for g in right])
    assert (norms > bound).any()
    expected = sum(g * min(1.0, bound / float(g.norm())) for g in right)
    torch.testing.assert_close(total.norms, norms, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(total.flat, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        losses = cross_entropy(model(x), y)
    means = torch.stack([losses[torch.tensor(of_whom) == p].mean() for p in range(5)])
    torch.testing.assert_close(total.losses, means, rtol=1e-4, atol=1e-6)


def holder(values: list[float], of_whom: list[str]) -> Federation:
    x = np.array(values, np.float32)[:, None]
    one = {"a": (x, np.zeros(len(values), np.float32), x[:0], np.zeros(0, np.float32))}
    return Federation.from_clients(one, units={"a": of_whom})


def released(federation: Federation, bound: float = 2.0) -> tuple[float, float]:
    """The weight's clipped sum and the clamped loss sum: released values times the divisor q·n, without noise."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    learner = Learner(model, squared_error)
    client = LocalClient(federation.clients[0], learner, privacy=PRIVATE, randomness=Everyone(0), round=0)
    (batch,) = client.batches(steps=1, epochs=None, batch_size=1)
    answer = batch.release(learner.initial(), coefficient=PlainClip(0.3), loss=fedfdp.algorithms.base.LossQuery(bound))
    divisor = PRIVATE.q * client.records
    return float(answer.gradient["weight"]) * divisor, (answer.loss or 0.0) * divisor


def test_by_hand():
    """Loss (w·x)² at w = 1, gradient 2x². ann: 0.1 and 0.2, so 0.02 + 0.08 = 0.10; bob: 1, so 2, cut to 0.3."""
    gradient, loss = released(holder([0.1, 1.0, 0.2], ["ann", "bob", "ann"]))
    assert gradient == pytest.approx(0.10 + 0.3)
    assert loss == pytest.approx((0.01 + 0.04) / 2 + 1.0)  # the mean of a person's losses


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-50, 50, width=32)), min_size=1, max_size=12),
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
)
def test_one_person_moves_the_release_by_no_more_than_the_bound(others, own):
    """However many records are theirs: zeroed out, they leave the number of persons as it was."""
    values, names = [v for _, v in others] + own, [n for n, _ in others] + ["new"] * len(own)
    with_them, loss_with = released(holder(values, names))
    rest, loss_rest = released(holder([v for _, v in others] or [0.0], [n for n, _ in others] or ["a"]))
    assert abs(with_them - rest) <= 0.3 * (1 + 1e-4) + 1e-6
    assert -1e-6 <= loss_with - loss_rest <= 2.0 * (1 + 1e-6) + 1e-6


def test_persons_are_drawn_whole_with_probability_q():
    rng = np.random.default_rng(0)
    names = [f"p{i}" for i in rng.integers(0, 400, 1500)]
    x = np.zeros((1500, 1), np.float32)
    federation = Federation.from_clients({"a": (x, x[:, 0], x[:0], x[:0, 0])}, units={"a": names})
    data, drawn = federation.clients[0], 0
    for t in range(50):
        learner = Learner(nn.Linear(1, 1), squared_error)
        client = LocalClient(data, learner, privacy=PRIVATE, randomness=Seeded(1), round=t)
        assert client.records == len(set(names))
        persons = client.poisson(0)
        chosen = {names[i] for i in data.train.persons.positions(persons).tolist()}
        assert len(data.train.persons.positions(persons)) == sum(name in chosen for name in names)
        drawn += len(chosen)
    n = 50 * len(set(names))
    assert abs(drawn - n * PRIVATE.q) < 5 * math.sqrt(n * PRIVATE.q * (1 - PRIVATE.q))


def test_nobody_is_in_both_parts_of_the_split():
    names = [f"p{i % 37}" for i in range(400)]
    x = np.arange(400, dtype=np.float32)[:, None]
    federation = Federation.from_clients({"a": (x, x[:, 0])}, units={"a": names}, test_fraction=0.25)
    (client,) = federation.clients
    train, test = ({names[i] for i in part.index.tolist()} for part in (client.train, client.test))
    assert not train & test
    assert (len(train), len(test)) == (27, 10)  # ⌈37/4⌉ persons for the test
    assert client.size == 27


@pytest.mark.parametrize("loss_at", ["global", "local"])
def test_a_run_counts_persons_and_says_so(tmp_path, loss_at):
    rng = np.random.default_rng(1)
    clients, units = {}, {}
    for name in ("north", "south"):
        x = rng.normal(size=(120, 4)).astype(np.float32)
        clients[name] = (x, (x[:, 0] > 0).astype(np.int64))
        units[name] = [f"{name}-{i // 3}" for i in range(120)]
    federation = Federation.from_clients(clients, units=units)
    result = fedfdp.train(
        build("linear", input_shape=(4,), outputs=2, seed=0),
        federation,
        algorithm=fedfdp.FedFDP(lr=0.5, loss_at=loss_at),
        privacy=PRIVATE,
        rounds=5,
        out=tmp_path / "run",
    )
    assert result.summary["records"] == 60  # 30 persons of each 40 train
    page = (tmp_path / "run" / "privacy.md").read_text()
    assert "Every person of every client" in page
    assert "one person at several clients" in page
    assert "| north | 30 |" in page


def test_rows_and_persons_that_do_not_fit_are_refused():
    x = np.zeros((3, 1), np.float32)
    with pytest.raises(DataError, match="3 records, 2 in units"):
        Federation.from_clients({"a": (x, x[:, 0])}, units={"a": ["p", "q"]})
    with pytest.raises(DataError, match="no units are given"):
        Federation.from_clients({"a": (x, x[:, 0])}, units={})


def test_who_is_who_is_part_of_the_fingerprint():
    one = holder([0.1, 1.0, 0.2], ["ann", "bob", "ann"])
    other = holder([0.1, 1.0, 0.2], ["ann", "bob", "bob"])
    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint() == replace(one).fingerprint()
