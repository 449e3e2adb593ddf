"""Ψ from released losses: the noise's own spread is taken off; by hand, by simulation, and by a real client."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedfdp.algorithms import FedFDP
from fedfdp.data import Federation
from fedfdp.engines.flower.evaluation import SMOOTHING, ReleasedLosses
from fedfdp.engines.flower.policy import Policy
from fedfdp.fairness.metrics import psi
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.client import LocalClient
from rounds import linear, population
from support import Given

PRIVACY = DPSGD(epsilon=3.52, delta=1e-5, sigma=2.0, sigma_loss=5.0, q=0.1, clip=1.0)


@dataclass(frozen=True)
class Upload:
    client: str
    records: int
    loss: float | None


def test_smoothing_and_variance_by_hand():
    losses = ReleasedLosses(FedFDP(loss_clip=2.0), PRIVACY)
    for value in (1.0, 2.0, 3.0):
        losses.note(Upload("a", 100, value))
    losses.note(Upload("b", 200, None))
    assert losses.means == {"a": pytest.approx(0.9 * (0.9 * 1 + 0.1 * 2) + 0.1 * 3)}
    one = (5.0 * 2.0 / (0.1 * 100)) ** 2  # 1
    assert losses.noise == {"a": pytest.approx(one * (0.81**2 + 0.09**2 + 0.1**2))}


def test_the_bound_follows_the_rule():
    fixed, mean, tracked = (
        ReleasedLosses(FedFDP(loss_bound=rule, loss_clip=2.0, loss_floor=0.5), PRIVACY)
        for rule in ("fixed", "mean", "quantile")
    )
    for losses in (fixed, mean, tracked):
        for value in (4.0, 0.1, 1.0):
            losses.note(Upload("a", 100, value))
    s, a = SMOOTHING**2, (1 - SMOOTHING) ** 2
    unit = (5.0 / (0.1 * 100)) ** 2
    assert fixed.noise["a"] == pytest.approx(unit * 4 * (s * s + s * a + a))
    # C_l is 2 at first, then the loss released before: 4, and 0.1, which the floor lifts to 0.5.
    assert mean.noise["a"] == pytest.approx(unit * (s * s * 4 + s * a * 16 + a * 0.25))
    assert tracked.noise["a"] == 0.0
    assert ReleasedLosses(FedFDP(), None)._variance("a", 100) == 0.0


def test_it_is_the_noise_that_a_client_adds():
    """With noise of exactly one standard deviation, the released loss is off by the square root of the variance."""
    x, y = torch.tensor([[1.0], [2.0]] * 50), torch.zeros(100)
    federation = Federation.from_clients({"a": (x, y, x, y), "b": (x, y, x, y)})
    method, learner = FedFDP(lr=1.0, loss_clip=3.0, loss_ceiling=5.0, initial_loss=1.0), linear(0.5)
    uploads = []
    for noise in (0.0, 1.0):
        client = LocalClient(federation.clients[0], learner, privacy=PRIVACY, randomness=Given(noise), round=0)
        broadcast = method.broadcast(method.init(learner.initial(), population(federation), PRIVACY))
        uploads.append(method.local(broadcast, method.memory(), client)[0])
    losses = ReleasedLosses(method, PRIVACY)
    losses.note(uploads[1])
    assert uploads[1].loss - uploads[0].loss == pytest.approx(losses.noise["a"] ** 0.5)


@pytest.mark.parametrize("rounds", [1, 12])
def test_the_estimate_is_right_in_the_mean(rounds):
    """Simulated releases around known losses: uncorrected, Ψ is too large by Σ p(1 − p)v; corrected, it is Ψ."""
    rng = np.random.default_rng(0)
    true, records = np.array([0.5, 1.0, 1.5, 3.0]), np.array([400, 300, 200, 100])
    shares = records / records.sum()
    scale = 5.0 * 2.5 / (0.1 * records)
    raw, corrected = [], []
    for _ in range(1500):
        losses = ReleasedLosses(FedFDP(loss_clip=2.5), PRIVACY)
        for _ in range(rounds):
            noised = true + scale * rng.normal(size=4)
            for i in range(4):
                losses.note(Upload(str(i), int(records[i]), float(noised[i])))
        means, noise = list(losses.means.values()), list(losses.noise.values())
        raw.append(psi(means, shares))
        corrected.append(psi(means, shares, noise))
    right = float(np.average((true - shares @ true) ** 2, weights=shares))
    error = np.std(raw) / np.sqrt(len(raw))
    added = float((shares * (1 - shares)) @ np.array(noise))
    assert added > 5 * error  # what is taken off can be seen
    assert np.mean(raw) - added == pytest.approx(right, abs=4 * error)
    assert np.mean(corrected) == pytest.approx(right, abs=4 * error)


def test_where_nobody_evaluates_progress_shows_what_was_released(deployment):
    secure = Policy(epsilon=8.0, max_q=0.2, unsafe_seeded=True)
    dep = deployment("algorithm.name=fedfdp", "algorithm.lr=0.5", policy=secure)
    result = dep.run()
    assert (result.summary["evaluated_clients"], result.summary["accuracy"]) == (0, None)
    assert result.summary["psi"] >= 0.0
    assert result.summary["metric"] == "loss"


def test_accuracy_across_machines_and_what_a_node_does_not_import(deployment):
    from fedfdp.core.errors import SettingError
    from fedfdp.runs.build import launch

    across = deployment("metric=accuracy", "rounds=1")
    there, here = across.run().summary, launch(across.config).summary
    assert there["metric"] == "accuracy"
    assert there["psi"] == pytest.approx(here["psi"], abs=1e-12)
    own = deployment("metric=os:getcwd", "rounds=1")
    with pytest.raises(SettingError, match="a node runs no code that its owner did not install"):
        own.run()
