"""Projections, least norms and conflicts, against what can be worked out by hand."""

import numpy as np
import pytest

from fedfdp.fairness.weights import least_norm, onto_box, onto_simplex, without_conflicts


def near(*values: float):
    return pytest.approx(values, abs=1e-9)


def test_onto_the_simplex():
    assert onto_simplex(np.array([0.5, 0.5])).tolist() == near(0.5, 0.5)
    assert onto_simplex(np.array([0.9, 0.6, -1.0])).tolist() == near(0.65, 0.35, 0)
    assert onto_simplex(np.array([3.0, 1.0, 1.0])).tolist() == near(1, 0, 0)
    assert onto_simplex(np.array([0.2, 0.4]), total=0.1).tolist() == near(0, 0.1)
    assert onto_simplex(np.array([])).tolist() == []


def test_no_point_of_the_simplex_is_nearer():
    rng = np.random.default_rng(0)
    for _ in range(20):
        point = rng.normal(size=5)
        found = onto_simplex(point)
        others = rng.dirichlet(np.ones(5), size=200)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        assert (((others - point) ** 2).sum(axis=1) >= ((found - point) ** 2).sum() - 1e-12).all()


def test_onto_a_box():
    low, high = np.array([0.1, 0.1, 0.1]), np.array([0.5, 0.5, 0.5])
    assert onto_box(np.array([1.0, 0.3, 0.0]), low, high).tolist() == near(0.5, 0.4, 0.1)


def test_least_norm_of_two_is_the_textbook_formula():
    # ‖λa + (1 − λ)b‖² is least at λ = (b − a)·b/‖a − b‖²
    a, b = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    rows = np.stack([a, b])
    found = least_norm(rows @ rows.T, np.zeros(2), np.ones(2))
    assert found.tolist() == pytest.approx([1 / 5, 4 / 5], abs=1e-7)
    assert least_norm(rows @ rows.T, np.array([0.4, 0.0]), np.ones(2)).tolist() == pytest.approx([0.4, 0.6], abs=1e-7)


def test_least_norm_fulfils_its_conditions():
    """Where λ_i is strictly inside, g_i·d is the same for all; at a lower bound it is no less, at an upper no more."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        rows = rng.normal(size=(6, 20))
        gram, shares = rows @ rows.T, rng.dirichlet(np.ones(6))
        low, high = np.clip(shares - 0.1, 0, 1), np.clip(shares + 0.1, 0, 1)
        found = least_norm(gram, low, high)
        slope, inside = gram @ found, (found > low + 1e-9) & (found < high - 1e-9)
        level = slope[inside].mean() if inside.any() else np.median(slope)
        assert found.sum() == pytest.approx(1)
        assert slope[inside] == pytest.approx(level, abs=1e-4)
        assert (slope[found <= low + 1e-9] >= level - 1e-4).all() or not inside.any()
        assert (slope[found >= high - 1e-9] <= level + 1e-4).all() or not inside.any()


def test_conflicts_are_taken_out_from_the_lowest_loss_on():
    # u1 = (1, 0), u2 = (−1, 1): u1' = u1 + ½u2, u2' = u2 + u1; half of each: 1·u1 + ¾·u2
    rows = np.array([[1.0, 0.0], [-1.0, 1.0]])
    omega = without_conflicts(rows @ rows.T, np.array([1.0, 2.0]), np.array([0.5, 0.5]), 0.0)
    assert omega.tolist() == near(1.0, 0.75)
    assert (omega @ rows).tolist() == near(0.25, 0.75)
    # the second is kept whole: ½(u1 + ½u2) + ½u2
    assert without_conflicts(rows @ rows.T, np.array([1.0, 2.0]), np.array([0.5, 0.5]), 0.5).tolist() == near(0.5, 0.75)


def test_the_order_of_losses_counts():
    # u3' = u3 without u1's, then without u2's: nothing is left against the last that was taken out
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]) + np.array([[0.0, 0.5], [0.5, 0.0], [0.0, 0.0]])
    for losses, last in (([1.0, 2.0, 0.0], 1), ([2.0, 1.0, 0.0], 0)):
        omega = without_conflicts(rows @ rows.T, np.array(losses), np.array([0.0, 0.0, 1.0]), 0.0)
        assert float(omega @ rows @ rows[last]) == pytest.approx(0, abs=1e-12)


def test_an_update_of_nothing_is_in_nobodys_way():
    assert without_conflicts(np.zeros((2, 2)), np.zeros(2), np.array([0.5, 0.5]), 0.1).tolist() == near(0.5, 0.5)
