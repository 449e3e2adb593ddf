import numpy as np
import pytest

from fedfdp.fairness.bounds import mean_bound, quantile_bound
from fedfdp.fairness.metrics import ClientResults, measures, psi
from fedfdp.fairness.metrics.over_clients import gini, jain, worst_share
from fedfdp.fairness.weights import fair_weight


def test_psi_by_hand():
    # p = ½, ¼, ¼; F = ½·1 + ¼·2 + ¼·6 = 2.5; ½·2.25 + ¼·0.25 + ¼·12.25
    assert psi([1.0, 2.0, 6.0], [2, 1, 1]) == pytest.approx(4.25)
    assert psi([3.0, 3.0], [0.1, 0.9]) == 0.0


def test_psi_is_the_weighted_variance():
    rng = np.random.default_rng(0)
    losses, shares = rng.exponential(size=50), rng.integers(1, 9, size=50)
    assert psi(losses, shares) == pytest.approx(np.repeat(losses, shares).var())


def test_jain_and_worst():
    assert jain([2, 2, 2]) == pytest.approx(1.0)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert worst_share(np.arange(20) / 20) == pytest.approx(0.025)  # the two lowest of twenty
    assert worst_share([0.9, 0.5]) == 0.5


def test_gini_is_its_definition():
    assert gini([3, 3, 3]) == 0.0
    assert gini([1, 0, 0, 0]) == pytest.approx(0.75)
    assert gini([1, 3]) == pytest.approx(2 * 2 / (2 * 4 * 2))  # Σ|x_i − x_j| = 4, n² = 4, mean 2
    x = np.random.default_rng(0).exponential(size=9)
    assert gini(x) == pytest.approx(np.abs(x[:, None] - x).sum() / (2 * 81 * x.mean()))
    assert gini([0, 0]) == 0.0


def test_measures_by_hand():
    results = ClientResults(
        losses=np.array([1.0, 3.0, 7.0]),
        accuracies=np.array([0.9, 0.5, np.nan]),
        records=np.array([30, 10, 0]),  # the third has nothing to be judged by
        shares=np.array([0.5, 0.25, 0.25]),
    )
    found = measures(results)
    assert found["accuracy"] == pytest.approx((27 + 5) / 40)
    assert found["loss"] == pytest.approx((2 * 1 + 3) / 3)
    assert found["psi"] == pytest.approx(2 / 3 * (2 / 3) ** 2 + 1 / 3 * (4 / 3) ** 2)
    assert found["worst_accuracy"] == 0.5
    assert found["std_accuracy"] == pytest.approx(0.2)
    assert found["worst_loss"] == 3.0
    assert found["worst_10_percent_loss"] == 3.0
    assert found["variance_accuracy"] == pytest.approx(0.04)
    assert found["variance_loss"] == pytest.approx(1.0)
    assert found["jain"] == pytest.approx(1.4**2 / (2 * (0.81 + 0.25)))
    assert found["jain_loss"] == pytest.approx(16 / 20)
    assert found["gini_accuracy"] == pytest.approx(0.8 / (2 * 4 * 0.7))
    assert found["gini_loss"] == pytest.approx(4 / (2 * 4 * 2))
    assert "auc" not in found  # no answers, as across machines


def test_psi_of_what_is_chosen_by_hand():
    losses, accuracies = np.array([1.0, 3.0]), np.array([0.9, 0.5])
    given = {"losses": losses, "accuracies": accuracies, "records": np.array([3, 1]), "shares": np.array([0.75, 0.25])}
    assert measures(ClientResults(**given))["psi"] == pytest.approx(0.75 * 0.5**2 + 0.25 * 1.5**2)
    by_accuracy = measures(ClientResults(**given, metric="accuracy"))
    assert by_accuracy["psi"] == pytest.approx(0.75 * 0.1**2 + 0.25 * 0.3**2)
    assert "performance" not in by_accuracy
    own = measures(ClientResults(**given, metric="m:f", of_outputs={"performance": np.array([10.0, 2.0])}))
    assert own["psi"] == pytest.approx(0.75 * 2**2 + 0.25 * 6**2)
    assert own["performance"] == pytest.approx(8.0)
    assert (own["lowest_performance"], own["highest_performance"], own["std_performance"]) == (2.0, 10.0, 4.0)
    assert own["loss"] == by_accuracy["loss"] == pytest.approx(1.5)


def test_the_noises_own_spread_is_taken_off_by_hand():
    # p = ½, ½: the noise adds ½·½·(0.4 + 0.8) = 0.3 to the spread of 1 and 3, which is 1.
    assert psi([1.0, 3.0], [1, 1], noise=[0.4, 0.8]) == pytest.approx(0.7)
    assert psi([1.0, 1.2], [1, 1], noise=[0.4, 0.8]) == 0.0


def test_fair_weight():
    limits = {"lam": 2.0, "low": 0.1, "high": 3.0}
    assert fair_weight(1.5, 1.0, **limits) == 2.0
    assert fair_weight(9.0, 1.0, **limits) == 3.0
    assert fair_weight(0.0, 1.0, **limits) == 0.1


def test_bounds():
    assert mean_bound(0.7, floor=0.1, ceiling=2.0) == 0.7
    assert mean_bound(7.0, floor=0.1, ceiling=2.0) == 2.0
    limits = {"quantile": 0.5, "step": 1.0, "floor": 0.1, "ceiling": 2.0}
    assert quantile_bound(1.0, 0.5, **limits) == 1.0
    assert quantile_bound(1.0, 1.0, **limits) == pytest.approx(np.exp(-0.5))
    assert quantile_bound(1.0, -9.0, **limits) == pytest.approx(np.exp(0.5))  # a noised fraction may be anything
    assert quantile_bound(1.9, 0.0, **limits) == 2.0


def test_the_papers_loss_bound_collapses_and_the_quantile_does_not():
    rng = np.random.default_rng(1)
    mean_rule = tracked = 2.5
    for _ in range(400):
        losses = rng.exponential(0.6, size=260)
        mean_rule = mean_bound(np.minimum(losses, mean_rule).mean(), floor=1e-3, ceiling=10.0)
        within = (losses <= tracked).mean()
        tracked = quantile_bound(tracked, within, quantile=0.95, step=0.2, floor=1e-3, ceiling=10.0)
    assert mean_rule < 0.01
    assert tracked == pytest.approx(0.6 * np.log(20), rel=0.15)
