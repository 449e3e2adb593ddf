import pytest

from fedfdp.fairness.adaptive import STRONGEST, WEAKEST, Drive


def test_lambda_follows_the_scale_of_the_loss():
    assert Drive(2.0).lam(0.5) == 4.0
    assert Drive(2.0).lam(50.0) == pytest.approx(0.04)
    assert Drive(2.0).lam(-0.1) == pytest.approx(2e6)  # a noised mean may be anything; the weights are clamped


def test_it_rises_while_losses_are_spread_and_rests_when_they_are_not():
    # mean 1, spread √((0.3² + 0.3²)/2) = 0.3 > 0.1
    assert Drive().after({"a": 0.7, "b": 1.3}, 1.0) == Drive(1.02, 1.0)
    assert Drive().after({"a": 0.95, "b": 1.05}, 1.0) == Drive(1.0, 1.0)


def test_it_falls_while_the_mean_suffers():
    assert Drive(1.0, lowest=0.9).after({"a": 0.5, "b": 1.5}, 1.0) == Drive(1 / 1.02, 0.9)
    assert Drive(1.0, lowest=0.96).after({"a": 0.5, "b": 1.5}, 1.0).strength == 1.02


def test_it_stays_within_its_limits():
    up, down = Drive(), Drive(lowest=0.1)
    for _ in range(500):
        up, down = up.after({"a": 0.5, "b": 1.5}, 1.0), down.after({"a": 1.0}, 1.0)
    assert (up.strength, down.strength) == (STRONGEST, WEAKEST)
