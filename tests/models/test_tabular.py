"""The built-in models on tables: two classes and regression, against scikit-learn and least squares."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.models import build

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).astype(np.float32)
SCORE = X @ np.array([1.0, -2.0, 0.5], dtype=np.float32)
CLASSES = (SCORE + RNG.normal(size=240) > 0).astype(np.int64)
VALUES = (SCORE + 0.3 + 0.1 * RNG.normal(size=240)).astype(np.float32)
PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=1.0, accountant="rdp")


def holders(y: np.ndarray) -> Federation:
    """Two unequal holders; each is tested on what it trains with."""
    parts = {"large": slice(0, 160), "small": slice(160, 240)}
    return Federation.from_clients({name: (X[s], y[s], X[s], y[s]) for name, s in parts.items()})


def full_batch(federation: Federation, *, outputs: int, rounds: int) -> fedfdp.Result:
    """One step a round on all records of each holder: gradient descent on the pooled loss."""
    model = build("linear", input_shape=(3,), outputs=outputs, seed=0)
    method = fedfdp.FedAvg(lr=0.3, local_steps=1, batch_size=1000)
    return fedfdp.train(model, federation, algorithm=method, rounds=rounds, eval_every=rounds)


def test_two_classes_are_logistic_regression():
    result = full_batch(holders(CLASSES), outputs=2, rounds=1500)
    pooled = LogisticRegression(C=np.inf).fit(X, CLASSES)
    layer = result.model[1]
    slope = (layer.weight[1] - layer.weight[0]).detach().numpy()  # of the log odds
    np.testing.assert_allclose(slope, pooled.coef_[0], rtol=1e-2)
    assert result.summary["accuracy"] == pytest.approx(pooled.score(X, CLASSES), abs=1 / 240)


@pytest.mark.parametrize("column", [False, True], ids=["y of shape (n,)", "y of shape (n, 1)"])
def test_one_output_is_linear_regression(column):
    result = full_batch(holders(VALUES[:, None] if column else VALUES), outputs=1, rounds=150)
    pooled = LinearRegression().fit(X, VALUES)
    layer = result.model[1]
    np.testing.assert_allclose(layer.weight[0].detach().numpy(), pooled.coef_, rtol=1e-4)
    assert layer.bias.item() == pytest.approx(float(pooled.intercept_), rel=1e-4)
    error = float(((pooled.predict(X) - VALUES) ** 2).mean())
    assert result.summary["loss"] == pytest.approx(error, rel=1e-4)
    assert result.summary["accuracy"] is None


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("shape", [(), (2,)], ids=["one target", "two targets"])
def test_both_learn_privately_by_regression(name, shape):
    y = VALUES if not shape else np.stack([VALUES, -VALUES], 1)
    outputs = 2 if shape else 1
    model = build(name, input_shape=(3,), outputs=outputs, seed=0)
    method = fedfdp.FedFDP(lr=0.3, loss_clip=10.0, initial_loss=5.0)
    result = fedfdp.train(model, holders(y), algorithm=method, privacy=PRIVATE, rounds=60)
    assert result.summary["loss"] < 0.5 * float((y**2).mean())  # better by half than saying nothing
    assert result.summary["epsilon"] <= 8.0


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_both_learn_two_classes_privately(name):
    model = build(name, input_shape=(3,), outputs=2, seed=0)
    result = fedfdp.train(model, holders(CLASSES), algorithm=fedfdp.FedFDP(lr=1.0), privacy=PRIVATE, rounds=40)
    assert result.summary["accuracy"] > max(CLASSES.mean(), 1 - CLASSES.mean()) + 0.1


def test_token_numbers_train_and_a_model_that_cannot_be_made_is_one_line():
    tokens = torch.from_numpy(RNG.integers(0, 20, size=(80, 6)))
    y = (tokens[:, 0] >= 10).long()
    both = Federation.from_clients({"a": (tokens[:50], y[:50]), "b": (tokens[50:], y[50:])})
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(24, 2))
    result = fedfdp.train(model, both, algorithm=fedfdp.FedAvg(lr=0.5), privacy=PRIVATE, rounds=2)
    assert result.summary["weights"] == 80 + 50
    arguments = {"in_features": "x", "out_features": 2}
    with pytest.raises(SettingError, match=r"model\.name = 'torch\.nn:Linear': cannot be made with .*TypeError"):
        build("torch.nn:Linear", input_shape=(3,), outputs=2, seed=0, arguments=arguments)
