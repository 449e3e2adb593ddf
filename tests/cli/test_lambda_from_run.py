import json

import numpy as np
import pytest
import torch

from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch

SETTINGS = ["data.clients=4", "data.fraction=0.3", "data.beta=1.0", "model.name=linear", "rounds=3", "privacy.q=0.2"]


@pytest.fixture(scope="module")
def config():
    return configs.load("digits", SETTINGS).resolved()


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    """Logistic regression on some digits."""
    path = tmp_path_factory.mktemp("runs") / "logistic"
    launch(config, out=path)
    return path


def test_constants_of_logistic_regression(fedfdp, config, folder):
    code, out, _ = fedfdp("lambda", "--from", folder, "--json")
    answer = json.loads(out)
    values = {name: estimate["value"] for name, estimate in answer["estimates"].items()}
    clients = federation_of(config).clients
    # Böhning's bound on the Hessian of softmax regression: ½·mean x̃x̃ᵀ with x̃ = (x, 1)
    ceiling = 0.0
    for client in clients:
        x = client.train.take()[0].reshape(len(client.train), -1).double().numpy()
        x = np.hstack([x, np.ones((len(x), 1))])
        ceiling = max(ceiling, np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2)
    assert code == 0
    assert 0.1 * ceiling < values["L"] <= ceiling
    assert values["mu"] <= 1e-6  # the same shift for every class changes nothing: some curvature is exactly 0
    assert values["b_hat"] == pytest.approx(0.2 * min(len(client.train) for client in clients))
    assert [values[name] for name in ("dim", "rounds", "sigma", "clip")] == [650, 3, 3.09, 0.1]
    assert values["q0"] < 0 < values["q1"]
    assert answer["regime"] == "void"
    assert "strongly convex" in answer["reason"]
    assert (answer["lambda_star"], answer["coefficients"], answer["domain"]) == (None, None, [0.0, 0.0])


def test_options_take_precedence_over_estimates(fedfdp, folder):
    answer = json.loads(fedfdp("lambda", "--from", folder, "--mu", "0.01", "--json")[1])
    assert "C_t" in answer["reason"]  # convex by decree, but still clipped to C/‖g‖
    code, out, _ = fedfdp("lambda", "--from", folder, "--mu", "0.01", "--clip", "1000", "--json")
    answer = json.loads(out)
    estimates = answer["estimates"]
    assert (code, answer["regime"], answer["lambda_star"]) == (0, "zero", 0.0)
    assert estimates["mu"] == {"value": 0.01, "how": "given", "private": False}
    assert estimates["C_t"]["value"] == pytest.approx(1)
    assert answer["domain"][1] == pytest.approx(-1 / (2 * estimates["q0"]["value"]))
    assert answer["coefficients"]["derived"]["a5"] == pytest.approx(2 * estimates["q0"]["value"])


def test_the_table_says_what_reads_private_data(fedfdp, folder, tmp_path):
    code, out, _ = fedfdp("lambda", "--from", folder, "--png", tmp_path / "p.png")
    rows = {line.split("│")[1].strip(): line.split("│")[3].strip() for line in out.splitlines() if "│" in line}
    assert code == 0
    assert (rows["L"], rows["μ"], rows["Γ"], rows["C_t"]) == ("yes",) * 4
    assert (rows["σ"], rows["C"], rows["T"], rows["d"]) == ("no",) * 4
    assert "simulations only" in out
    assert "nothing to draw" in out


def test_what_cannot_be_estimated(fedfdp, folder, tmp_path):
    assert "not a run folder" in fedfdp("lambda", "--from", tmp_path)[2]
    code, _, error = fedfdp("lambda", "--L", "2")
    assert (code, error.count("\n")) == (2, 1)
    assert "mu = None: needed" in error
    assert "--from RUN" in error


def test_runs_with_records_of_their_own_are_refused(fedfdp, two_clients, tmp_path):
    from fedfdp import FedAvg, train

    train(torch.nn.Linear(2, 1), two_clients, algorithm=FedAvg(), rounds=1, out=tmp_path / "own")
    code, _, error = fedfdp("lambda", "--from", tmp_path / "own")
    assert code == 2
    assert "records of its own" in error
