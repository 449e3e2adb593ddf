import pytest

from fedfdp.tuning.pareto import Outcome, chosen, front, ranked

# accuracy, Ψ, worst client
MADE = {
    "accurate": Outcome(9, 0.96, 0.010, 0.90),
    "equal": Outcome(9, 0.95, 0.001, 0.91),
    "beaten": Outcome(9, 0.95, 0.002, 0.90),  # by "equal" in Ψ and the worst client
    "spared": Outcome(9, 0.94, 0.020, 0.93),  # best worst client
    "ignorant": Outcome(9, 0.10, 0.0001, 0.09),  # equally bad to everyone
}


def test_front_by_hand():
    assert front(MADE) == ["accurate", "equal", "spared", "ignorant"]
    assert front({}) == []


def test_twins_are_both_on_the_front():
    twin = Outcome(9, 0.9, 0.1, 0.8)
    assert front({"a": twin, "b": twin}) == ["a", "b"]


def test_equality_alone_does_not_promote_a_model_that_learnt_nothing():
    assert ranked(MADE) == ["accurate", "equal", "spared", "beaten", "ignorant"]


@pytest.mark.parametrize(("points", "best"), [(0.5, "accurate"), (1.0, "equal"), (2.0, "equal"), (90.0, "ignorant")])
def test_choice(points, best):
    assert chosen(MADE, points=points + 1e-9) == best


def test_an_outcome_without_numbers_is_the_worst():
    lost = Outcome.of({"round": 3, "accuracy": 0.1, "psi": None, "worst_accuracy": 0.0})
    assert lost == Outcome(3, 0.1, float("inf"), 0.0)
    assert MADE["ignorant"].dominates(lost)
    assert not lost.dominates(lost)
