"""Each holder's own model: made of its own records alone, for linear models, and as a reference only."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

import fedfdp
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy, squared_error
from fedfdp.training.alone import alone, cheap
from fedfdp.training.evaluation import LocalEvaluator


def holders(classes=True):
    g = torch.Generator().manual_seed(0)
    found = {}
    for name, slope in ("up", 1.0), ("down", -1.0):  # what helps one harms the other
        x = torch.randn(80, 3, generator=g)
        y = slope * x[:, 0] + 0.1 * torch.randn(80, generator=g)
        found[name] = (x[:60], (y[:60] > 0).long(), x[60:], (y[60:] > 0).long()) if classes else (
            x[:60], y[:60], x[60:], y[60:])  # fmt: skip
    return fedfdp.Federation.from_clients(found)


def test_it_is_what_scikit_learn_reaches_with_these_records():
    data = holders()
    (got,) = alone(data).values()
    for value, client in zip(got, data.clients, strict=True):
        (x, y), (x_test, y_test) = client.train.take(), client.test.take()
        model = LogisticRegression(max_iter=200).fit(x.numpy().astype(float), y.numpy())
        assert value == pytest.approx(model.score(x_test.numpy().astype(float), y_test.numpy()))
    assert min(got) > 0.9


def test_numbers_have_a_root_mean_squared_error():
    data = holders(classes=False)
    (got,) = alone(data).values()
    x, y = data.clients[0].train.take()
    x_test, y_test = data.clients[0].test.take()
    gap = Ridge().fit(x.double(), y.double()).predict(x_test.double()) - y_test.double().numpy()
    assert got[0] == pytest.approx(np.sqrt((gap**2).mean()))


def test_a_holder_with_one_class_always_answers_it_and_one_without_test_records_has_no_value():
    x = torch.zeros(3, 2)
    one = (x, torch.tensor([1, 1, 1]), x, torch.tensor([1, 0, 1]))
    none = (x, x[:, 0].long(), x[:0], x[:0, 0].long())
    data = fedfdp.Federation.from_clients({"one": one, "none": none}, classes=2)
    (got,) = alone(data).values()
    assert got[0] == pytest.approx(2 / 3)
    assert np.isnan(got[1])


def test_where_it_is_cheap():
    data, linear = holders(), torch.nn.Linear(3, 2)
    assert cheap(Learner(linear, cross_entropy), data)
    assert cheap(Learner(torch.nn.Sequential(torch.nn.Flatten(), linear), cross_entropy), data)
    deep = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    assert not cheap(Learner(deep, cross_entropy), data)
    assert not cheap(Learner(linear, squared_error), data)


def test_a_run_keeps_it_at_its_end_and_a_node_never_computes_it():
    data, linear = holders(), torch.nn.Linear(3, 2)
    result = fedfdp.train(linear, data, algorithm=fedfdp.FedAvg(lr=0.1), rounds=2, eval_every=1)
    assert "alone_accuracy" not in result.history[0]
    kept = result.history[-1]["clients"]["alone_accuracy"]
    assert result.summary["alone_accuracy"] == pytest.approx(np.mean(kept))
    accuracies = result.history[-1]["clients"]["accuracy"]
    assert result.summary["better_alone"] == sum(a > b for a, b in zip(kept, accuracies, strict=True))
    learner = Learner(torch.nn.Linear(3, 2), cross_entropy)
    judging = LocalEvaluator(learner, data, answers=False)
    assert judging.alone() == {}
    assert judging.test(learner.initial()).answers is None
