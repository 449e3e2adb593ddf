"""A coordinator that chooses numbers to make noise useless: refused before a record is read or a ledger charged.

Whether a certain record is there changes nothing of what the coordinator sees.
"""

import json
import logging
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms.ali_dpfl import ALIDPFL, ALIBroadcast
from fedfdp.algorithms.base import Broadcast, Population
from fedfdp.algorithms.fedavg import FedAvg
from fedfdp.algorithms.fedfdp import FDPBroadcast, FDPMemory, FedFDP
from fedfdp.core.errors import FedFDPError, SettingError
from fedfdp.core.records import to_bytes
from fedfdp.data import Federation
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.policy import Policy
from fedfdp.engines.flower.terms import Terms, build_model
from fedfdp.engines.local import LocalEngine
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import NOT_FINITE
from support import Given

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=3.0, sigma=2.0, q=0.5, clip=1.0, sigma_loss=5.0)


def book(privacy: fedfdp.DPSGD, names: list[str]) -> LedgerBook:
    budgets = dict.fromkeys(names, privacy.epsilon)
    return LedgerBook.open(
        None, data="d", config="c", budgets=budgets, delta=1e-5, accountant=privacy.accountant, sync=False
    )


def seen(engine: LocalEngine, broadcast: Broadcast, memories: dict) -> str:
    """What the coordinator sees of a round: a line that refuses it, or whether all that was uploaded is finite."""
    try:
        uploads = [upload for upload, _ in engine.round(broadcast, memories)]
    except FedFDPError as refused:
        return str(refused)
    finite = all(torch.isfinite(tensor).all() for upload in uploads for tensor in upload.update.values())
    return f"finite: {finite and all(math.isfinite(getattr(upload, 'loss', 0.0)) for upload in uploads)}"


def attacked(*, present: bool) -> tuple[str, int]:
    """The answer to weights and a bound that make one record's clipped gradient overflow, and the charges paid."""
    x, y = torch.zeros(20, 3), torch.arange(20) % 2
    x[:, 0] = 0.1
    x[7] = torch.tensor([0.0, 2.0, 0.0]) if present else torch.zeros(3)  # who alone has this feature
    federation = Federation.from_clients({"a": (x, y, x, y)}, classes=3)
    learner = Learner(nn.Linear(3, 3, bias=False), cross_entropy)
    weights = learner.initial()
    weights["weight"].zero_()
    weights["weight"][2, 1] = 1.5e32  # a loss of 3e32 for that record, ln 3 for all others
    method, ledgers = FedFDP(coefficients="paper", lam=1e6), book(PRIVATE, ["a"])
    engine = LocalEngine(federation, learner, method, privacy=PRIVATE, randomness=Given(), book=ledgers)
    answer = seen(engine, FDPBroadcast(0, weights, math.log(3), 1e39), {})
    return answer, ledgers.charged()


def test_a_bound_scaled_beyond_all_numbers_does_not_show_who_is_there():
    """The one record's c·g was infinite, and so was its sum with noise: it told the coordinator who was there."""
    there, not_there = attacked(present=True), attacked(present=False)
    assert there == not_there
    answer, charged = there
    assert answer == "FDPBroadcast.clip_scale = 1e+39: a multiple of the configured clip from 0.001 to 1000"
    assert charged == 0


OUT_OF_RANGE = [
    (FedFDP(), {"clip_scale": 1e39}, "clip_scale"),
    (FedFDP(), {"clip_scale": 1e-43}, "clip_scale"),
    (FedFDP(), {"clip_scale": 0.0}, "clip_scale"),
    (FedFDP(), {"clip_scale": -1.0}, "clip_scale"),
    (FedFDP(), {"clip_scale": math.nan}, "clip_scale"),
    (FedFDP(), {"loss": 1e300}, "loss"),
    (FedFDP(), {"loss": -math.inf}, "loss"),
    (FedFDP(), {"round": -1}, "round"),
    (FedFDP(), {"round": 2**40}, "round"),
    (ALIDPFL(), {"tau": 0}, "tau"),
    (ALIDPFL(), {"tau": -3}, "tau"),
    (ALIDPFL(), {"tau": 10**9}, "tau"),
]


@pytest.mark.parametrize(("method", "change", "name"), OUT_OF_RANGE)
def test_a_broadcast_out_of_range_is_refused_and_costs_nothing(digits, method, change, name):
    method = replace(method, lr=1.0)
    privacy = replace(PRIVATE, accountant="rdp")
    learner = Learner(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), cross_entropy)
    made = {
        "fedfdp": FDPBroadcast(0, learner.initial(), 2.3, 1.0),
        "ali_dpfl": ALIBroadcast(0, learner.initial(), 1),
    }[method.name]
    ledgers = book(privacy, [client.name for client in digits.clients])
    engine = LocalEngine(digits, learner, method, privacy=privacy, randomness=Seeded(0), book=ledgers)
    with pytest.raises(SettingError, match=rf"^{type(made).__name__}\.{name} = .* from .* to "):
        list(engine.round(replace(made, **change), {}))
    assert ledgers.charged() == 0
    assert len(list(engine.round(made, {}))) == len(digits)


def test_a_remembered_bound_out_of_range_is_refused_and_costs_nothing(digits):
    """Terms may change from round to round, and with them what an earlier ceiling let through."""
    learner = Learner(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), cross_entropy)
    name = digits.clients[0].name
    ledgers = book(PRIVATE, [client.name for client in digits.clients])
    engine = LocalEngine(digits, learner, FedFDP(), privacy=PRIVATE, randomness=Seeded(0), book=ledgers, fused=False)
    for bound in (1e300, 0.0, math.inf, math.nan):
        with pytest.raises(SettingError, match=r"^FDPMemory\.loss_bound = "):
            list(engine.round(FDPBroadcast(0, learner.initial(), 2.3, 1.0), {name: FDPMemory(bound)}, [name]))
    assert ledgers.charged() == 0


def test_a_method_that_makes_its_own_bound_is_checked_too(digits):
    class Scaled(FedAvg):
        def coefficient(self, broadcast, privacy):
            return PlainClip(1e20)

    learner = Learner(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), cross_entropy)
    ledgers = book(PRIVATE, [client.name for client in digits.clients])
    engine = LocalEngine(digits, learner, Scaled(), privacy=PRIVATE, randomness=Seeded(0), book=ledgers)
    with pytest.raises(SettingError, match=r"^clip = 1e\+20: a bound on a gradient's norm"):
        list(engine.round(Broadcast(0, learner.initial()), {}))
    assert ledgers.charged() == 0


# At a node ------------------------------------------------------------------------------------------------------------


def question(dep, *, change=None, algorithm=None, privacy=None):
    config = dep.config.resolved()
    model = build_model({"name": "linear"}, dep.federation, seed=0)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = config.algorithm.init(weights, Population(3, 100, 10, 10), config.privacy)
    terms = json.loads(Terms.of(config.algorithm, config.model, config.privacy, config.seed, seeded=False).to_json())
    terms["algorithm"] |= algorithm or {}
    terms["privacy"] |= privacy or {}
    broadcast = replace(config.algorithm.broadcast(state), **change or {})
    return Question("train", "r", json.dumps(terms), 0, -1, to_bytes(broadcast))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"change": {"clip_scale": 1e39}}, "FDPBroadcast.clip_scale = 1e+39: a multiple of the configured clip from"),
        ({"change": {"clip_scale": 1e-43}}, "FDPBroadcast.clip_scale = 1e-43: "),
        ({"change": {"loss": 1e38}}, "FDPBroadcast.loss = 1e+38: a mean loss from"),
        ({"algorithm": {"lam": 1e35}}, "algorithm.lam = 1e+35: a fairness λ from 0 to"),
        ({"algorithm": {"kappa": 1e39}}, "algorithm.kappa = 1e+39: "),
        ({"algorithm": {"gamma": 1e-43}}, "algorithm.gamma = 1e-43: "),
        ({"algorithm": {"loss_ceiling": 1e308}}, "algorithm.loss_ceiling = 1e+308: "),
        ({"algorithm": {"loss_clip": 1e-43, "loss_floor": 1e-43}}, "algorithm.loss_clip = 1e-43: "),
        ({"algorithm": {"lr": 1e38}}, "algorithm.lr = 1e+38: "),
        ({"algorithm": {"quantile_step": 1e6}}, "algorithm.quantile_step = 1000000.0: "),
        ({"privacy": {"clip": 1e-43}}, "privacy.clip = 1e-43: "),
        ({"privacy": {"clip": 1e30}}, "privacy.clip = 1e+30: "),
        ({"privacy": {"sigma": 1e300}}, "privacy.sigma = 1e+300: "),
        ({"privacy": {"sigma_loss": 1e300}}, "privacy.sigma_loss = 1e+300: "),
        ({"privacy": {"q": 1e-300}}, "privacy.q = 1e-300: "),
    ],
)
def test_a_node_refuses_numbers_out_of_range_in_one_line_and_pays_nothing(deployment, asked, reason):
    dep = deployment("algorithm.name=fedfdp", "algorithm.lr=0.5", policy=Policy(epsilon=8.0, max_q=0.2))
    node = dep.nodes[100]
    answer = node.answer(question(dep, **asked))
    assert (answer.status, answer.record) == ("refused", b"")
    assert answer.reason.startswith(reason)
    assert "\n" not in answer.reason
    assert list(node.ledger.entries()) == []
    assert node.answer(question(dep)).status == "ok"  # and goes on


# The last defence -----------------------------------------------------------------------------------------------------


class Spoilt(Learner):
    """A kernel with a fault: the second client's sum is not finite."""

    def clipped(self, weights, x, y, coefficient, sizes=None):
        total = super().clipped(weights, x, y, coefficient, sizes)
        total.flat[1, 3] = math.inf
        total.flat[1, 4] = -math.inf
        return total


def test_a_sum_that_is_not_finite_leaves_as_noise_alone(digits, caplog):
    def updates(kind):
        torch.manual_seed(0)
        learner = kind(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), cross_entropy)
        engine = LocalEngine(digits, learner, FedAvg(lr=1.0), privacy=PRIVATE, randomness=Given(noise=1.0), book=None)
        return [upload.update for upload, _ in engine.round(Broadcast(0, learner.initial()), {})]

    with caplog.at_level(logging.ERROR, "fedfdp.client"):
        good = updates(Learner)
        assert caplog.messages == []
        spoilt = updates(Spoilt)
    second = digits.clients[1]
    assert caplog.messages == [f"{second.name}, round 0: {NOT_FINITE}"]
    for k, (one, other) in enumerate(zip(good, spoilt, strict=True)):
        assert (one == other) == (k != 1)
    noise = -PRIVATE.noise * PRIVATE.clip / (PRIVATE.q * second.size)  # as of an empty batch
    assert torch.allclose(spoilt[1].vectors[0], torch.tensor(noise), rtol=1e-6, atol=0)
