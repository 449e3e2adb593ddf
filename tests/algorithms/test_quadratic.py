"""Where each method ends on a strongly convex quadratic whose optimum is known: where its theory says.

Three holders of a two-weight regression, every step on all of a client's records: F_i = ½wᵀA_i w − b_iᵀw + const with
A_i = 2XᵀX/n, b_i = 2Xᵀy/n. The optimum of Σ p_i F_i is (Σ p_i A_i)⁻¹ Σ p_i b_i.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedfdp.algorithms import QFFL, FedAvg, FedDyn, FedFair, FedProx, Scaffold
from fedfdp.data import Federation
from fedfdp.fairness.metrics import psi
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Key, Seeded
from rounds import linear, play

LR, K = 0.2, 4
RNG = np.random.default_rng(4)
DATA = {}
for name, n, truth, spread in (("a", 6, (1.0, 0.0), 1.0), ("b", 9, (-1.0, 2.0), 0.6), ("c", 15, (0.5, -1.0), 1.4)):
    x = RNG.normal(size=(n, 2)) * (spread, 1.0)
    DATA[name] = (x, x @ truth + 0.3 * RNG.normal(size=n))
P = np.array([6, 9, 15]) / 30
A = [2 * x.T @ x / len(x) for x, _ in DATA.values()]
B = [2 * x.T @ y / len(x) for x, y in DATA.values()]
OPTIMUM = np.linalg.solve(sum(p * a for p, a in zip(P, A, strict=True)), sum(p * b for p, b in zip(P, B, strict=True)))


@pytest.fixture(scope="module")
def holders() -> Federation:
    tensors = {name: (torch.tensor(x).float(), torch.tensor(y).float()) for name, (x, y) in DATA.items()}
    return Federation.from_clients({name: (x, y, x, y) for name, (x, y) in tensors.items()}, classes=None)


def losses(w) -> np.ndarray:
    return np.array([np.mean((x @ w - y) ** 2) for x, y in DATA.values()])


def away(played) -> float:
    return float(np.linalg.norm(np.array(played.weights) - OPTIMUM))


def settled(method, holders, rounds=150, **options):
    return play(method, holders, linear(0, 0), rounds=rounds, **options)


def fixed_point(mu: float = 0.0) -> np.ndarray:
    """Where averaging K local steps along A_i w − b_i + μ(w − w_t) ends: Σ p_i S_i (A_i w − b_i) = 0, with
    S_i = (I − (I − η(A_i + μI))^K)(A_i + μI)⁻¹."""
    pulled = [a + mu * np.eye(2) for a in A]
    reach = [(np.eye(2) - np.linalg.matrix_power(np.eye(2) - LR * a, K)) @ np.linalg.inv(a) for a in pulled]
    left = sum(p * s @ a for p, s, a in zip(P, reach, A, strict=True))
    return np.linalg.solve(left, sum(p * s @ b for p, s, b in zip(P, reach, B, strict=True)))


def test_fedavg_is_right_with_one_step_and_biased_with_more(holders):
    assert away(settled(FedAvg(lr=LR, local_steps=1), holders)) < 1e-5
    assert np.linalg.norm(fixed_point() - OPTIMUM) > 0.1
    assert settled(FedAvg(lr=LR, local_steps=K), holders).weights == pytest.approx(fixed_point(), abs=1e-5)


def test_fedprox_ends_where_its_pull_says(holders):
    assert np.linalg.norm(fixed_point(3.0) - fixed_point()) > 0.01
    played = settled(FedProx(lr=LR, local_steps=K, mu=3.0), holders)
    assert played.weights == pytest.approx(fixed_point(3.0), abs=1e-5)


@pytest.mark.parametrize("method", [Scaffold(lr=LR, local_steps=K), FedDyn(lr=LR, local_steps=K, alpha=1.0)])
def test_scaffold_and_feddyn_are_unbiased(holders, method):
    assert away(settled(method, holders)) < 1e-5


def now_and_then(client: str, round: int) -> bool:
    """Each client is there in about half of the rounds, in some alone, in some nobody."""
    return Seeded(5).uniform(1, Key(client, round, 0, "there")).item() < 0.5


@pytest.mark.parametrize("method", [Scaffold(lr=LR, local_steps=K), FedDyn(lr=LR, local_steps=K, alpha=1.0)])
def test_they_stay_unbiased_when_clients_miss_rounds(holders, method):
    played = settled(method, holders, present=now_and_then)
    assert away(played) < 1e-5
    assert away(settled(FedAvg(lr=LR, local_steps=K), holders, present=now_and_then)) > 0.02


def test_the_servers_c_and_h_are_the_means_over_all_clients(holders):
    for method, field, part in ((Scaffold(lr=LR), "control", "control"), (FedDyn(lr=LR, alpha=1.0), "h", "h")):
        played = settled(method, holders, rounds=7, present=now_and_then)
        own = {name: getattr(memory, part)["weight"].numpy() for name, memory in played.memories.items()}
        mean = sum(p * own.get(name, 0.0) for p, name in zip(P, DATA, strict=True))
        np.testing.assert_allclose(getattr(played.state, field)["weight"].numpy(), mean, atol=1e-6)


def test_qffl_ends_where_its_objective_is_least_and_losses_even_out(holders):
    gaps, reached = [], []
    for q_f in (0.0, 1.0, 4.0):
        w = np.array(settled(QFFL(lr=LR, q_f=q_f, local_steps=1), holders, rounds=300).weights)
        found = losses(w)
        slope = sum(p * f**q_f * (a @ w - b) for p, f, a, b in zip(P, found, A, B, strict=True))
        assert np.linalg.norm(slope) < 1e-4 * np.mean(found**q_f)  # ∇ Σ p_i F_i^(q_f + 1)/(q_f + 1) = 0
        gaps.append(float(np.ptp(found)))
        reached.append(w)
    assert reached[0] == pytest.approx(OPTIMUM, abs=1e-5)
    assert gaps[0] > 1.1 * gaps[1] > 1.21 * gaps[2]


def test_fedfair_lowers_psi_as_lambda_grows(holders):
    found = []
    for lam in (0.0, 0.1, 0.3):
        played = settled(FedFair(lr=0.1, lam=lam, local_steps=1, initial_loss=1.0), holders)
        found.append(psi(losses(np.array(played.weights)), P))
    assert found[0] > 1.1 * found[1] > 1.21 * found[2]


PRIVATE = DPSGD(delta=1e-5, epsilon=100.0, sigma=1.0, q=0.5, clip=1.0, sigma_loss=5.0)


@pytest.mark.parametrize(
    ("method", "privacy"),
    [
        (FedProx(lr=LR, mu=0.0), None),
        (FedProx(lr=LR, mu=0.0), PRIVATE),
        (QFFL(lr=LR, q_f=0.0), None),
        (QFFL(lr=LR, q_f=0.0), PRIVATE),
        (FedFair(lr=LR, lam=0.0, initial_loss=1.0), None),
    ],
)
def test_switched_off_they_are_fedavg_to_the_bit(holders, method, privacy):
    options = {"privacy": privacy, "randomness": Seeded(1), "rounds": 5}
    one = play(replace(method, local_steps=3), holders, linear(0, 0), **options)
    other = play(FedAvg(lr=LR, local_steps=3), holders, linear(0, 0), **options)
    assert one.weights == other.weights


@pytest.mark.parametrize("privacy", [None, PRIVATE])
def test_with_one_step_fedprox_is_fedavg_to_the_bit_and_scaffold_up_to_rounding(holders, privacy):
    options = {"privacy": privacy, "randomness": Seeded(1), "rounds": 20}
    plain = play(FedAvg(lr=LR, local_steps=1), holders, linear(0, 0), **options)
    assert play(FedProx(lr=LR, mu=3.0, local_steps=1), holders, linear(0, 0), **options).weights == plain.weights
    scaffold = play(Scaffold(lr=LR, local_steps=1), holders, linear(0, 0), **options)
    assert scaffold.weights == pytest.approx(plain.weights, abs=1e-5)
    apart = play(Scaffold(lr=LR, local_steps=1), holders, linear(0, 0), present=now_and_then, **options)
    alone = play(FedAvg(lr=LR, local_steps=1), holders, linear(0, 0), present=now_and_then, **options)
    assert abs(apart.weights[0] - alone.weights[0]) > 1e-3  # only with everyone
