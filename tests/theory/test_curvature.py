import numpy as np
import pytest
import torch

from fedfdp.theory.curvature import Losses, extremes, minimum


def quadratic(matrix: torch.Tensor):
    return lambda w: w @ matrix @ w / 2


def spectrum(values: list[float]) -> torch.Tensor:
    """A symmetric matrix with these eigenvalues."""
    turn = torch.linalg.qr(torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(1)).double())[
        0
    ]
    return turn @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ turn.T


def test_few_weights_are_exact():
    found = extremes(quadratic(spectrum([-2.0, 0.5, 3.0])), torch.ones(3, dtype=torch.float64))
    assert (found.low, found.high) == pytest.approx((-2.0, 3.0), rel=1e-12)
    assert found.doubt == 0


def test_repeated_eigenvalues_end_early_and_are_exact():
    found = extremes(quadratic(spectrum([0.25] * 30 + [4.0] * 30)), torch.ones(60, dtype=torch.float64))
    assert (found.low, found.high) == pytest.approx((0.25, 4.0), rel=1e-9)
    assert found.doubt < 1e-9


def test_doubt_covers_the_nearest_eigenvalue_where_weights_are_many():
    values = np.linspace(0.01, 10, 200)
    found = extremes(quadratic(spectrum(list(values))), torch.ones(200, dtype=torch.float64), steps=12)
    assert values[0] < found.low  # never below the spectrum
    assert found.high < values[-1]
    assert np.abs(values - found.low).min() <= found.doubt
    assert found.doubt > 0


def test_minimum_of_a_quadratic():
    centre = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    bowl = quadratic(spectrum([0.1, 1.0, 5.0]))
    found = minimum(lambda w: bowl(w - centre) + 7, torch.zeros(3, dtype=torch.float64))
    assert found.at.tolist() == pytest.approx(centre.tolist(), abs=1e-7)
    assert found.value == pytest.approx(7, abs=1e-12)
    assert found.gradient < 1e-6


def test_hessian_of_softmax_regression_is_numpys():
    """Fresh weights are 0, so every class has probability 1/3: the Hessian is (I/3 − 11ᵀ/9) ⊗ mean x̃x̃ᵀ."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(2))
    model = torch.nn.Linear(2, 3)
    weights = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    losses = Losses(model, lambda output, y: torch.nn.functional.cross_entropy(output, y, reduction="none"))
    found = extremes(losses.mean(x, torch.arange(40) % 3), losses.vector(weights))
    with_one = np.hstack([x.double().numpy(), np.ones((40, 1))])
    expected = np.kron(np.eye(3) / 3 - 1 / 9, with_one.T @ with_one / 40)
    eigenvalues = np.linalg.eigvalsh(expected)
    assert found.high == pytest.approx(eigenvalues[-1], rel=1e-9)
    assert found.low == pytest.approx(0, abs=1e-12)
    assert found.doubt == pytest.approx(0, abs=1e-9)


def test_the_model_itself_is_left_as_it_was():
    model = torch.nn.Linear(2, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = Losses(model, lambda output, y: (output.squeeze(1) - y).square())
    losses.records({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, torch.ones(3, 2), torch.zeros(3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
