"""Least squares, where every constant has a closed form: F_i(w) = mean_j (x_j·w − y_j)²."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedfdp import DPSGD, FedAvg, FedFDP
from fedfdp.data import Federation
from fedfdp.theory.estimates import Estimate, estimate
from fedfdp.theory.optimum import derived_optimum

FIRST, FINAL = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.3, -0.2])
PRIVATE = DPSGD(delta=1e-5, epsilon=None, sigma=1.5, q=0.25, clip=2.0, sigma_loss=5.0)


def client(seed: int, records: int, truth: list[float]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, 3)) * [1.0, 0.5, 2.0]
    return x, x @ truth + 0.1 * rng.normal(size=records)


CLIENTS = {"a": client(1, 20, [1.0, 0.5, -0.5]), "b": client(2, 60, [-1.0, 1.5, 0.0])}


@pytest.fixture(scope="module")
def federation() -> Federation:
    given = {name: (*map(torch.tensor, xy), *map(torch.tensor, xy)) for name, xy in CLIENTS.items()}
    return Federation.from_clients({name: [t.float() for t in xy] for name, xy in given.items()}, classes=None)


@pytest.fixture(scope="module")
def found(federation):
    return run(federation)


def run(federation, **changes):
    weights = [{"weight": torch.tensor(w[None], dtype=torch.float32)} for w in (FIRST, FINAL)]
    given = {"algorithm": FedFDP(lam=0.1, coefficients="paper"), "privacy": PRIVATE, "rounds": 70} | changes
    return estimate(torch.nn.Linear(3, 1, bias=False), federation, first=weights[0], final=weights[1], **given)


def hessian(x: np.ndarray) -> np.ndarray:
    return 2 * x.T @ x / len(x)


def record_values(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses, gradient norms 2|x·w − y|‖x‖, and p_i/n_i = 1/80, of all records."""
    x, y = (np.concatenate(parts) for parts in zip(*CLIENTS.values(), strict=True))
    gap = x @ w - y
    return gap**2, 2 * np.abs(gap) * np.linalg.norm(x, axis=1), np.full(80, 1 / 80)


def test_curvature(found):
    spectra = [np.linalg.eigvalsh(hessian(x)) for x, _ in CLIENTS.values()]
    assert found.L.value == pytest.approx(max(s[-1] for s in spectra), rel=1e-6)
    assert found.mu.value == pytest.approx(min(s[0] for s in spectra), rel=1e-6)


def test_minima(found):
    own = [np.linalg.lstsq(x, y, rcond=None)[0] for x, y in CLIENTS.values()]
    least = [np.mean((x @ w - y) ** 2) for (x, y), w in zip(CLIENTS.values(), own, strict=True)]
    x, y = (np.concatenate(parts) for parts in zip(*CLIENTS.values(), strict=True))  # p_i = n_i/Σn_j: one big client
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    together = np.mean((x @ best - y) ** 2)
    assert found.gamma_het.value == pytest.approx(together - (0.25 * least[0] + 0.75 * least[1]), rel=1e-5)
    assert found.distance.value == pytest.approx(((FIRST - best) ** 2).sum(), rel=1e-5)


def test_records(found):
    (l1, g1, p), (l2, g2, _) = record_values(FIRST), record_values(FINAL)
    assert found.G.value == pytest.approx(max(g1.max(), g2.max()), rel=1e-5)
    assert found.q0.value == pytest.approx(min((l1 - p @ l1).min(), (l2 - p @ l2).min()), rel=1e-5)
    assert found.q1.value == pytest.approx(max((l1 - p @ l1).max(), (l2 - p @ l2).max()), rel=1e-5)


def test_the_mean_coefficient_is_that_of_the_method(found, federation):
    def mean(coefficient):
        return min(p @ coefficient(loss, norm, p @ loss) for loss, norm, p in map(record_values, (FIRST, FINAL)))

    def paper(loss, norm, mean_loss):
        s = 1 + 0.1 * (loss - mean_loss)
        return np.sign(s) * np.minimum(np.abs(s), 2 / norm)

    assert found.C_t.value == pytest.approx(mean(paper), rel=1e-5)
    plain = run(federation, algorithm=FedAvg(lr=1.0))
    assert plain.C_t.value == pytest.approx(mean(lambda loss, norm, _: np.minimum(1, 2 / norm)), rel=1e-5)


def test_what_is_public_comes_from_the_settings(found):
    assert [found.sigma.value, found.clip.value, found.dim.value, found.rounds.value] == [1.5, 2.0, 3, 70]
    assert found.b_hat.value == 5.0  # 0.25·20
    public = {name for name, one in found.items().items() if not one.private}
    assert public == {"sigma", "clip", "dim", "b_hat", "rounds"}


def test_without_privacy_nothing_is_clipped(federation):
    found = run(federation, algorithm=FedAvg(lr=0.1, batch_size=32), privacy=None)
    assert (found.sigma.value, found.b_hat.value, found.C_t.value) == (0.0, 20, pytest.approx(1))
    assert found.clip.value == found.G.value
    assert "one local step" in found.rounds.how  # an epoch a round
    assert found.optimum().regime == "zero"


def test_fewer_records_keep_the_shares(federation):
    found = run(federation, records=8)
    assert "8 of 80 training records" in found.L.how
    assert found.L.value != run(federation).L.value


def test_lambda_star_is_that_of_the_constants(federation):
    found = run(federation, algorithm=FedAvg(lr=1.0), privacy=replace(PRIVATE, clip=1000.0))
    constants = found.constants()
    assert constants is not None
    assert constants.clip == 1000
    assert found.optimum() == derived_optimum(constants)
    assert found.optimum().lambda_star == 0.0  # Q_0 < 0


def test_no_strong_convexity_no_bound(found):
    flat = replace(found, mu=Estimate(-0.01, "", True))
    assert flat.constants() is None
    assert (flat.optimum().lambda_star, flat.optimum().regime, flat.optimum().domain) == (None, "void", (0.0, 0.0))
    assert "strongly convex" in flat.optimum().reason
    assert flat.given({"mu": 0.1}).constants() is not None


def test_a_small_mean_coefficient_voids_the_theorem(federation):
    found = run(federation, privacy=replace(PRIVATE, clip=0.1))
    assert found.C_t.value < 0.5
    assert found.optimum().regime == "void"
    assert "C_t = " in found.optimum().reason


def test_given_constants_take_precedence(found):
    changed = found.given({"L": 50.0}).items()
    assert changed["L"] == Estimate(50.0, "given", False)
    assert changed["G"] == found.G
