"""What each holder would reach alone: the same model, trained on its own records and on nothing else.

A reference for simulations: it is not noised, it is never released, and it is made only where it is cheap: for models
that are one linear layer, which scikit-learn fits in milliseconds.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedfdp.data import Federation, Shard
from fedfdp.models.learner import Learner
from fedfdp.models.losses import task_for

MOST_HOLDERS = 100
MOST_WORK = 20_000_000  # training records times weights, over all holders
STEPS = 200

Floats = NDArray[np.float64]


def cheap(learner: Learner, federation: Federation) -> bool:
    """Whether the models of all holders take a second or two at most."""
    layers = [layer for layer in learner.model.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
    linear = len(layers) == 1 and type(layers[0]) is nn.Linear and learner.loss_fn is task_for(federation.classes).loss
    weights = sum(parameter.numel() for parameter in learner.model.parameters())
    work = weights * sum(len(client.train) for client in federation.clients)
    return linear and len(federation) <= MOST_HOLDERS and work <= MOST_WORK


def alone(federation: Federation) -> dict[str, Floats]:
    """By the metric's name: how each holder's own model does on its test records; NaN where it has none."""
    name = "alone_rmse" if federation.classes is None else "alone_accuracy"
    judge = _rmse if federation.classes is None else _accuracy
    values = [judge(federation, c.train, c.test) if len(c.test) else np.nan for c in federation.clients]
    return {name: np.array(values, dtype=np.float64)}


def _accuracy(federation: Federation, train: Shard, test: Shard) -> float:
    """Of logistic regression with scikit-learn's defaults; of a holder with one class, of always that class."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    (x, y), (x_test, y_test) = _arrays(train), _arrays(test)
    if len(np.unique(y)) == 1:
        return float((y_test == y[0]).mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(max_iter=STEPS).fit(x, y)
    return float((fitted.predict(x_test) == y_test).mean())


def _rmse(federation: Federation, train: Shard, test: Shard) -> float:
    """Of ridge regression with scikit-learn's defaults, in the target's own unit."""
    import torch
    from sklearn.linear_model import Ridge

    (x, y), (x_test, y_test) = _arrays(train), _arrays(test)
    answers = torch.from_numpy(np.asarray(Ridge().fit(x, y).predict(x_test)))
    gap = federation.in_own_unit(answers) - federation.in_own_unit(torch.from_numpy(y_test))
    return float(gap.square().mean().sqrt())


def _arrays(shard: Shard) -> tuple[Floats, NDArray[np.generic]]:
    x, y = shard.take()
    return x.flatten(1).double().numpy(), y.double().numpy() if y.is_floating_point() else y.numpy()
