"""Own parts and nested widths: what is shared, what stays, what a record can change."""

import copy

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms import MRMTL, TERM, FedAvg, FedFDP, FedFV, Scaffold
from fedfdp.algorithms.base import Broadcast, Mean
from fedfdp.algorithms.parts import Kept, check_nested, in_parts
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import Weights, digest, from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.client import LocalClient
from support import Given

PRIVATE = DPSGD(epsilon=100.0, sigma=2.0, sigma_loss=5.0, q=1.0, clip=1.0)


class Net(nn.Module):
    """head·(body·x): two numbers, each a layer."""

    def __init__(self, body: float = 1.0, head: float = 1.0) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.body.weight.fill_(body)
            self.head.weight.fill_(head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@pytest.fixture
def pair() -> Federation:
    """a: x = 1, y = 2, three times; b: x = 1, y = −1, once. At head = body = 1 the outputs are 1."""
    a, b = (torch.ones(3, 1), torch.full((3,), 2.0)), (torch.ones(1, 1), torch.full((1,), -1.0))
    return Federation.from_clients({"a": (*a, *a), "b": (*b, *b)}, classes=None)


def rounds(method, federation, count, privacy=None, noise=0.0):
    """That many rounds of a method in parts, client by client; the state, the memories and the last uploads."""
    learner = Learner(Net(), squared_error, in_parts=True)
    sizes = [len(client.train) for client in federation.clients]
    population = fedfdp.algorithms.base.Population(2, sum(sizes), min(sizes), None)
    state, memories, uploads = method.init(learner.initial(), population, privacy), {}, []
    for _ in range(count):
        broadcast, uploads = method.broadcast(state), []
        for data in federation.clients:
            client = LocalClient(data, learner, privacy=privacy, randomness=Given(noise), round=broadcast.round)
            memory = memories.get(data.name, method.memory())
            upload, memories[data.name] = method.local(broadcast, memory, client)
            uploads.append(upload)
        state = method.aggregate(state, uploads)
    return state, memories, uploads


def test_a_head_stays_and_a_body_is_shared(pair):
    # output 1: gradient of (hb − y)² is 2(hb − y)·(h, b): a −2 for both, b 4 for both. η = 0.1
    method = in_parts(FedAvg(lr=0.1), ["head"])
    state, memories, uploads = rounds(method, pair, 1)
    assert [dict(upload.update).keys() for upload in uploads] == [{"body.weight"}] * 2
    assert [float(upload.update["body.weight"]) for upload in uploads] == pytest.approx([0.2, -0.4])
    assert list(state.weights) == ["body.weight"]
    assert float(state.weights["body.weight"]) == pytest.approx(1 + (3 * 0.2 - 0.4) / 4)
    assert [float(memories[n].own["head.weight"]) for n in "ab"] == pytest.approx([1.2, 0.6])
    # round 2: body 1.05. a: head 1.2, output 1.26, 2·(−0.74); b: head 0.6, output 0.63, 2·1.63
    state, memories, uploads = rounds(method, pair, 2)
    assert float(memories["a"].own["head.weight"]) == pytest.approx(1.2 + 0.1 * 1.48 * 1.05)
    assert float(uploads[1].update["body.weight"]) == pytest.approx(-0.1 * 3.26 * 0.6)


def test_head_and_body_are_clipped_as_one_gradient_and_both_noised(pair):
    # each record's gradient (−2, −2) becomes (−1, −1)/√2 for C = 1; noise σC·0.1 = 0.2 on each of both; over n = 3
    method = in_parts(FedAvg(lr=0.1), ["head"])
    _, memories, uploads = rounds(method, pair, 1, PRIVATE, noise=0.1)
    step = -0.1 * (-3 / 2**0.5 + 0.2) / 3
    assert float(uploads[0].update["body.weight"]) == pytest.approx(step, rel=1e-5)
    assert float(memories["a"].own["head.weight"]) == pytest.approx(1 + step, rel=1e-5)
    assert method.events(None, PRIVATE) == FedAvg(lr=0.1).events(None, PRIVATE)  # the same event, the same price


def test_memory_and_uploads_travel(pair):
    method = in_parts(FedFDP(lr=0.1, initial_loss=1.0), ["head"])
    _, memories, uploads = rounds(method, pair, 2, PRIVATE, noise=0.1)
    for memory in memories.values():
        again = from_bytes(method.Memory, to_bytes(memory))
        assert digest(again) == digest(memory)
        assert type(again) is Kept
    assert from_bytes(method.Reply, to_bytes(uploads[0])).loss == uploads[0].loss


# The trap -----------------------------------------------------------------------------------------------------------


class RawHead(FedAvg):
    """What must not be done: the head takes its gradient without noise, then the body's is clipped and noised."""

    def local(self, broadcast, memory, client):
        x, y = client.data.train.take(client.poisson(0))
        output = x * broadcast.weights["body.weight"].item()
        head = (output[:, 0] * y).sum() / (output**2).sum()  # the least squares fit to all of the batch's records
        whole = w.assembled(client.initial, {"head.weight": head.reshape(1, 1)}, broadcast.weights)
        return super().local(Broadcast(broadcast.round, whole), memory, client)


def moved_by_one_record(method, memory) -> float:
    """How far one record moves the body's clipped sum: twice C would be two records' worth; C is what is paid for."""
    x, y = torch.ones(41, 1), torch.full((41,), 1.0)
    x[40], y[40] = 2000.0, -2000.0  # the canary
    sums = []
    for present in (True, False):
        federation = Federation.from_clients({"a": (x, y, x, y)}, classes=None)
        learner = Learner(Net(), squared_error, in_parts=True)
        without = None if present else 40

        class Draws(Given):
            def uniform(self, count, key, without=without):
                draws = super().uniform(count, key)
                if without is not None:
                    draws[without] = 1.0
                return draws

        client = LocalClient(federation.clients[0], learner, privacy=PRIVATE, randomness=Draws(0.0), round=0)
        shared = Weights.of({"body.weight": torch.ones(1, 1)})
        upload, _ = method.local(Broadcast(0, shared), memory, client)
        sums.append(float(upload.update["body.weight"]) * 41)
    return abs(sums[0] - sums[1])


def test_a_head_without_noise_voids_the_bound_and_ours_does_not():
    """One record turns the head round, and with it the gradients that forty others give to the body."""
    ours = moved_by_one_record(method := in_parts(FedAvg(lr=1.0), ["head"]), method.memory())
    assert ours <= PRIVATE.clip * (1 + 1e-5)
    assert moved_by_one_record(RawHead(lr=1.0), RawHead().memory()) > 5 * PRIVATE.clip


def test_many_rounds_of_ours_release_nothing_but_through_the_mechanism(pair):
    """Given the same noised answers, uploads and heads are the same whatever the records are."""
    import algorithms.test_canary as canary

    method = in_parts(FedAvg(lr=0.5, local_steps=2), ["bias"])
    one, other = (canary.client(0, canary=there) for there in (True, False))
    for each in (one, other):
        each.learner.first = each.learner.initial()
    broadcast = Broadcast(0, method.shared(one.learner.initial()))
    watched = canary.Watched(one)
    upload, memory = method.local(broadcast, method.memory(), watched)
    again, memory_again = method.local(broadcast, method.memory(), canary.Replayed(other, watched.kept))
    assert (digest(upload), digest(memory)) == (digest(again), digest(memory_again))
    assert len(watched.released) == sum(event.count for event in method.events(None, canary.PRIVATE)) == 2


# What is refused ----------------------------------------------------------------------------------------------------


def test_patterns_that_name_nothing_or_everything(pair):
    for own, message in ((["haed"], "did you mean 'head'"), (["*"], "nothing is left to share")):
        with pytest.raises(SettingError, match=message):
            fedfdp.train(Net(), pair, algorithm=FedAvg(), rounds=1, own=own)


@pytest.mark.parametrize("method", [Scaffold(), MRMTL(), FedFV(initial_loss=1.0)], ids=lambda m: m.name)
def test_methods_that_send_or_compare_more_than_a_model_are_refused(pair, method):
    with pytest.raises(SettingError, match=rf"algorithm.name = '{method.name}'.*take fedavg"):
        fedfdp.train(Net(), pair, algorithm=method, rounds=1, own=["head"])


# Nested widths ------------------------------------------------------------------------------------------------------


def test_every_number_is_averaged_over_those_that_hold_it():
    # 2×2 at weight 1 and the leading 1×1 at weight 3
    mean = Mean(Weights.of({"w": torch.zeros(2, 2)}))
    mean.add(Weights.of({"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}), 1.0)
    mean.add(Weights.of({"w": torch.tensor([[5.0]])}), 3.0)
    found = mean.added_to(Weights.of({"w": torch.full((2, 2), 10.0)}))
    assert found["w"].tolist() == [[14.0, 12.0], [13.0, 14.0]]


def test_a_number_that_nobody_held_stays():
    mean = Mean(Weights.of({"w": torch.zeros(3)}))
    mean.add(Weights.of({"w": torch.tensor([2.0])}), 2.0, exponent=-5.0)
    mean.add(Weights.of({"w": torch.tensor([4.0, 6.0])}), 2.0, exponent=-5.0)
    assert mean.added_to(Weights.of({"w": torch.zeros(3)}))["w"].tolist() == [3.0, 6.0, 0.0]


def mlp(hidden: int, outputs: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


@pytest.mark.parametrize("privacy", [None, DPSGD(epsilon=20.0, sigma=1.0, q=0.2, clip=1.0)], ids=["plain", "private"])
def test_narrower_clients_train_their_slices(digits, tmp_path, privacy):
    narrow = {"client-1": mlp(8), "client-2": mlp(4)}
    options = {"algorithm": TERM(lr=0.5), "privacy": privacy, "rounds": 3, "models": narrow, "seed": 1}
    result = fedfdp.train(mlp(16), digits, out=tmp_path / "run", **options)
    assert [tuple(p.shape) for p in result.model.parameters()] == [(16, 64), (16,), (10, 16), (10,)]
    whole, small = result.model.state_dict(), fedfdp.load(tmp_path / "run", mlp(4), holder="client-2").state_dict()
    assert torch.equal(small["1.weight"], whole["1.weight"][:4])
    assert torch.equal(small["3.weight"], whole["3.weight"][:, :4])
    x, y = digits.clients[2].test.take()
    net = mlp(4)
    net.load_state_dict(small)
    loss = nn.functional.cross_entropy(net(x), y).item()
    assert result.history[-1]["clients"]["loss"][2] == pytest.approx(loss, rel=1e-5)


def test_clients_with_models_of_their_own_may_train_a_part_of_them(digits):
    """A bias that is frozen everywhere belongs to no update: nobody's model lacks it."""

    def frozen(hidden: int) -> nn.Module:
        model = mlp(hidden)
        model[3].bias.requires_grad_(False)
        return model

    models = {"client-1": frozen(8)}
    result = fedfdp.train(frozen(16), digits, algorithm=FedAvg(lr=0.5), rounds=1, models=models, seed=1)
    assert torch.equal(result.model.get_parameter("3.bias"), frozen(16).get_parameter("3.bias"))
    assert not torch.equal(result.model.get_parameter("1.weight"), frozen(16).get_parameter("1.weight"))


def test_shapes_that_do_not_nest_are_refused_before_the_first_round(digits, tmp_path):
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 10))
    for models, message in (
        ({"client-1": mlp(32)}, r"1.weight of client-1's model is \(32, 64\), which is no leading part of \(16, 64\)"),
        ({"client-1": other}, "client-1's model has a parameter 5.weight that the full model has not"),
        ({"client-9": mlp(8)}, "models = 'client-9': no such client"),
    ):
        with pytest.raises(SettingError, match=message):
            fedfdp.train(mlp(16), digits, algorithm=FedAvg(), rounds=1, models=models, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(SettingError, match="lacks the parameter b, which is shared"):
        check_nested("a", {"w": torch.zeros(1)}, {"w": torch.zeros(2), "b": torch.zeros(1)})


def test_a_run_in_parts_resumes_to_the_same_bits(digits, tmp_path):
    options = {"algorithm": FedFDP(lr=0.5), "privacy": DPSGD(epsilon=20.0, sigma=1.0, q=0.2, clip=1.0), "rounds": 4}
    options |= {"own": ["3"], "models": {"client-3": mlp(8)}, "eval_every": 1, "seed": 2}
    fedfdp.train(mlp(16), digits, out=tmp_path / "whole", **options)

    def stop(update) -> None:
        if update.step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedfdp.train(mlp(16), digits, out=tmp_path / "run", on_update=stop, **options)
    with pytest.raises(fedfdp.FedFDPError, match="belongs to another run"):
        fedfdp.train(mlp(16), digits, out=tmp_path / "run", resume=True, **{**options, "own": ["1"]})
    fedfdp.train(mlp(16), digits, out=tmp_path / "run", resume=True, **options)
    for name in digits.names:
        net = mlp(8 if name == "client-3" else 16)
        one, other = (fedfdp.load(tmp_path / r, copy.deepcopy(net), holder=name).state_dict() for r in ("run", "whole"))
        assert all(torch.equal(one[part], other[part]) for part in one)
    heads = [fedfdp.load(tmp_path / "run", mlp(16), holder=name).state_dict()["3.weight"] for name in digits.names[:2]]
    assert not torch.equal(*heads)
    released = fedfdp.load(tmp_path / "run", mlp(16)).state_dict()
    assert torch.equal(released["3.weight"], mlp(16).state_dict()["3.weight"])  # nobody's head is in the released model
