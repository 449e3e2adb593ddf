"""What each holder would reach alone: the same model, trained on its own records and on nothing else.

A reference for simulations: it is not noised, it is never released, and it is made only where it is cheap: for models
that are one linear layer on small tables.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from fedfdp.core.trees import is_plain
from fedfdp.data import Federation, Shard
from fedfdp.models.learner import Learner

MOST_HOLDERS = 100
MOST_WORK = 500_000  # training records times weights, over all holders: well below a second
STEPS = 200

Floats = NDArray[np.float64]


def cheap(learner: Learner, federation: Federation) -> bool:
    """Whether the models of all holders take well below a second."""
    layers = [layer for layer in learner.model.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
    usual = federation.task.usual and learner.loss_fn is federation.task.loss and is_plain(federation.form)
    linear = usual and len(layers) == 1 and type(layers[0]) is nn.Linear
    weights = sum(parameter.numel() for parameter in learner.model.parameters())
    work = weights * int(federation.held("train").counts.sum())
    return linear and len(federation) <= MOST_HOLDERS and work <= MOST_WORK


def alone(federation: Federation) -> dict[str, Floats]:
    """By the metric's name: how each holder's own model does on its test records; NaN where it has none."""
    name = "alone_rmse" if federation.classes is None else "alone_accuracy"
    judge = _rmse if federation.classes is None else _accuracy
    with threadpool_limits(1):  # threads wait for each other twenty times longer than such small products take
        values = [judge(federation, c.train, c.test) if len(c.test) else np.nan for c in federation.clients]
    return {name: np.array(values, dtype=np.float64)}


def _accuracy(federation: Federation, train: Shard, test: Shard) -> float:
    (x, y), (x_test, y_test) = _arrays(train), _arrays(test)
    classes, targets = np.unique(y, return_inverse=True)
    answers = (_with_one(x_test) @ _logistic(x, targets, len(classes))).argmax(1)
    return float((classes[answers] == y_test).mean())


def _rmse(federation: Federation, train: Shard, test: Shard) -> float:
    (x, y), (x_test, y_test) = _arrays(train), _arrays(test)
    answers = torch.from_numpy(_with_one(x_test) @ _ridge(x, y.astype(np.float64)))
    gap = federation.in_own_unit(answers) - federation.in_own_unit(torch.from_numpy(y_test))
    return float(gap.square().mean().sqrt())


def _logistic(x: Floats, y: NDArray[np.int64], classes: int) -> Floats:
    """Multinomial logistic regression: the sum of the losses plus ‖w‖²/2, the intercepts left out of it."""
    from scipy.optimize import minimize

    inputs, right = _with_one(x), np.eye(classes)[y]

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(-1, classes)
        scores = inputs @ weights
        scores -= scores.max(1, keepdims=True)
        sizes = np.exp(scores)
        total = sizes.sum(1, keepdims=True)
        loss = float((np.log(total[:, 0]) - (scores * right).sum(1)).sum() + (weights[:-1] ** 2).sum() / 2)
        slope = inputs.T @ (sizes / total - right)
        slope[:-1] += weights[:-1]
        return loss, slope.ravel()

    start = np.zeros(inputs.shape[1] * classes)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return np.asarray(found.x).reshape(-1, classes)


def _ridge(x: Floats, y: Floats) -> Floats:
    """Ridge regression: the sum of the squared errors plus ‖w‖², the intercept left out of it."""
    middle, level = x.mean(0), y.mean(0)
    centred = x - middle
    weights = np.linalg.solve(centred.T @ centred + np.eye(x.shape[1]), centred.T @ (y - level))
    return np.concatenate([weights, (level - middle @ weights)[None]])


def _with_one(x: Floats) -> Floats:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def _arrays(shard: Shard) -> tuple[Floats, NDArray[Any]]:
    x, y = shard.take()
    assert isinstance(x, Tensor)
    return x.flatten(1).double().numpy(), y.double().numpy() if y.is_floating_point() else y.numpy()
