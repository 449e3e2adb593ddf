"""What holds for every method: its records travel, its uploads are not kept, it resumes, a config can choose it."""

import math
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms import ALGORITHMS, Algorithm
from fedfdp.algorithms.base import Population
from fedfdp.core.errors import SettingError
from fedfdp.core.records import digest, from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.runs import config
from fedfdp.training.client import LocalClient
from rounds import play

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=20.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant="rdp")


def cases():
    """Every method with every privacy it accepts."""
    for name, kind in ALGORITHMS.items():
        for privacy in (None, PRIVATE):
            try:
                kind().check_privacy(privacy)
            except SettingError:
                continue
            yield pytest.param(kind(lr=0.5), privacy, id=f"{name}{'-private' if privacy else ''}")


every = pytest.mark.parametrize(("method", "privacy"), list(cases()))


def learner(federation: Federation) -> Learner:
    return Learner(build("linear", input_shape=federation.input_shape, outputs=10, seed=1), cross_entropy)


def played(method: Algorithm, privacy, federation: Federation, rounds: int = 3):
    return play(method, federation, learner(federation), privacy=privacy, randomness=Seeded(2), rounds=rounds)


def outcome(end) -> str:
    """What the rounds came to: the released weights, and those of clients that have their own."""
    return digest(end.state.weights, *(getattr(memory, "weights", 0) for memory in end.memories.values()))


def test_each_has_its_own_name_and_at_least_one_form():
    assert [kind.name for kind in ALGORITHMS.values()] == list(ALGORITHMS)
    assert {case.values[0].name for case in cases()} == set(ALGORITHMS)


@every
def test_records_cross_a_network_bit_for_bit(digits, method, privacy):
    end = played(method, privacy, digits)
    records = [(method.State, end.state), (method.Message, end.broadcast)]
    records += [(method.Reply, upload) for upload in end.uploads]
    records += [(method.Memory, memory) for memory in [*end.memories.values(), method.memory()]]
    for kind, record in records:
        again = from_bytes(kind, to_bytes(record))
        assert type(again) is type(record) is kind
        assert digest(again) == digest(record)


@every
def test_uploads_are_read_once_and_none_is_kept(digits, method, privacy):
    end = played(method, privacy, digits, rounds=1)
    stored = [to_bytes(upload) for upload in end.uploads]
    alive, updates, held = [], [], []

    def arriving():
        for data in stored:
            upload = from_bytes(method.Reply, data)
            alive.append(weakref.ref(upload))
            updates.append(weakref.ref(upload.update))
            yield upload
            del upload
            assert len([ref for ref in alive if ref() is not None]) <= 1
            held.append(len([ref for ref in updates if ref() is not None]))

    method.aggregate(end.state, arriving())
    assert len(alive) == len(digits.clients)
    assert max(held) <= 1  # a method that compares updates (`keeps_updates`) makes copies of them


@every
@pytest.mark.usefixtures("shared_noise")
def test_many_clients_in_one_pass_change_nothing(digits, method, privacy):
    model = build("linear", input_shape=digits.input_shape, outputs=10, seed=1)
    options = {"algorithm": method, "privacy": privacy, "rounds": 4, "seed": 3}
    one, other = (fedfdp.train(model, digits, fused=fused, **options) for fused in (True, False))
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if not kind.adaptive])
def test_steps_and_epochs(digits, name):
    """K steps, or E passes: without privacy E·⌈n/batch⌉ of them, with privacy E·⌈1/q⌉."""
    data = digits.clients[0]
    client = LocalClient(data, learner(digits), privacy=None, randomness=Seeded(0), round=0)
    steps, epochs = ALGORITHMS[name](local_steps=3), ALGORITHMS[name](local_epochs=2, batch_size=8)
    times = ALGORITHMS[name].passes
    assert len(list(steps.batches(None, client))) == 3 * times
    assert len(list(epochs.batches(None, client))) == 2 * times * math.ceil(len(data.train) / 8)
    price = [sum(event.count for event in m.events(None, PRIVATE)) for m in (steps, epochs)]
    assert price == [3 * times, 2 * 5 * times]  # every pass is paid for


@every
def test_a_resumed_run_goes_on_to_the_same_bits(digits, tmp_path, method, privacy):
    model = build("linear", input_shape=digits.input_shape, outputs=10, seed=1)
    options = {"algorithm": method, "privacy": privacy, "rounds": 5, "seed": 3, "eval_every": 1}
    whole = fedfdp.train(model, digits, out=tmp_path / "whole", **options)

    def stop(update) -> None:
        if update.step.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedfdp.train(model, digits, out=tmp_path / "run", on_update=stop, **options)
    again = fedfdp.train(model, digits, out=tmp_path / "run", resume=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True))
    for name in digits.names if method.personal else ():
        one, other = (fedfdp.load(tmp_path / run, model, holder=name).state_dict() for run in ("run", "whole"))
        assert all(torch.equal(one[part], other[part]) for part in one)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_chosen_by_name_in_a_config(name):
    privacy = ["privacy=none", "rounds=2"] if name == "fedfair" else ["privacy.accountant=rdp"]
    chosen = config.load("default", [f"algorithm.name={name}", "algorithm.lr=0.3", *privacy])
    assert type(chosen.algorithm) is ALGORITHMS[name]
    assert config.from_dict(chosen.to_dict()) == chosen
    assert chosen.resolved().algorithm.lr == 0.3


@every
def test_a_step_size_that_decays_is_lr_times_decay_to_the_round(digits, method, privacy):
    """Three rounds by one method with decay are three methods of one round, each with its own lr."""
    decaying = replace(method, lr_decay=0.25)
    options = {"privacy": privacy, "randomness": Seeded(2)}
    by_hand = play(method, digits, learner(digits), **options)
    for lr in (0.125, 0.03125):
        by_hand = play(replace(method, lr=lr), digits, learner(digits), after=by_hand, **options)
    found = played(decaying, privacy, digits)
    assert outcome(found) == outcome(by_hand)
    assert outcome(found) != outcome(played(method, privacy, digits))


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.01, math.nan])
def test_a_step_size_cannot_grow_or_vanish(decay):
    with pytest.raises(SettingError, match=r"algorithm\.lr_decay"):
        fedfdp.FedAvg(lr_decay=decay)


@every
def test_a_step_size_that_decayed_to_nothing_divides_nothing_by_zero(digits, method, privacy):
    end = played(replace(method, lr_decay=1e-200), privacy, digits)
    assert all(torch.isfinite(tensor).all() for tensor in end.state.weights.values())
    assert method.step_size(10**9) == method.lr  # without decay
    assert 0 < replace(method, lr_decay=0.5).step_size(10**6) < 1e-19


class Twice(nn.Module):
    """Two offsets that are only ever added: autograd gives both the same memory as their gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.a, self.b = nn.Linear(64, 10), nn.Parameter(torch.zeros(10)), nn.Parameter(torch.zeros(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1)) + (self.a + self.b)


@every
def test_parameters_whose_gradients_share_memory_go_the_same_way(method, privacy, digits):
    torch.manual_seed(0)
    made = LocalClient(
        digits.clients[0], Learner(Twice(), cross_entropy), privacy=privacy, randomness=Seeded(0), round=0
    )
    weights, population = made.learner.initial(), Population(4, 1000, 100, 10)
    update = method.local(method.broadcast(method.init(weights, population, privacy)), method.memory(), made)[0].update
    if privacy is None:
        assert torch.equal(update["a"], update["b"])
        assert torch.allclose(update["a"], update["linear.bias"], atol=1e-6)  # the same derivative
    assert all(tensor.isfinite().all() for tensor in update.values())
