"""What "performance" means, chosen by the user: reported as chosen, and without effect on what is trained."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.fairness.performance import Performance
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant="rdp")
QUICK = ["data.fraction=0.2", "data.clients=3", "rounds=2", "model.name=linear"]


def macro_f1(outputs, targets):
    """Not a mean over records: it needs all of a client's at once."""
    return f1_score(targets.numpy(), outputs.argmax(1).numpy(), average="macro")


def absolute_error(outputs, targets):
    return (outputs[:, 0] - targets).abs().mean()


def run(federation, metric):
    return fedfdp.train(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
        federation,
        algorithm=fedfdp.FedFDP(lr=2.0),
        privacy=PRIVATE,
        rounds=4,
        eval_every=2,
        metric=metric,
    )


def weighted_variance(values, shares):
    return np.average((values - np.average(values, weights=shares)) ** 2, weights=shares)


def test_psi_is_of_the_chosen_metric_and_nothing_else_changes(digits):
    torch.manual_seed(0)
    by_loss = run(digits, "loss")
    torch.manual_seed(0)
    by_accuracy = run(digits, "accuracy")
    torch.manual_seed(0)
    by_f1 = run(digits, macro_f1)
    shares = np.array([len(client.train) for client in digits.clients])
    clients = by_loss.history[-1]["clients"]
    assert by_loss.summary["psi"] == pytest.approx(weighted_variance(np.array(clients["loss"]), shares))
    assert by_accuracy.summary["psi"] == pytest.approx(weighted_variance(np.array(clients["accuracy"]), shares))
    expected = []
    for client in digits.clients:
        x, y = client.test.take()
        with torch.no_grad():
            expected.append(f1_score(y, by_f1.model(x).argmax(1), average="macro"))
    assert by_f1.history[-1]["clients"]["performance"] == pytest.approx(expected)
    assert by_f1.summary["psi"] == pytest.approx(weighted_variance(np.array(expected), shares))
    assert by_f1.summary["performance"] == pytest.approx(np.average(expected, weights=shares))
    assert by_f1.summary["lowest_performance"] == pytest.approx(min(expected))
    named = [result.summary["metric"] for result in (by_loss, by_accuracy, by_f1)]
    assert named == ["loss", "accuracy", "macro_f1"]
    for other in (by_accuracy, by_f1):
        assert other.summary["epsilon"] == by_loss.summary["epsilon"]
        assert other.summary["psi_local"] == by_loss.summary["psi_local"]  # of the clients' own losses, always
        for name, tensor in by_loss.model.state_dict().items():
            assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_psi_on_the_training_records_is_of_the_chosen_metric_too():
    x = torch.tensor([[1.0], [2.0], [4.0], [3.0]])
    y = torch.tensor([0.0, 0.0, 0.0, 1.0])
    holders = Federation.from_clients({"a": (x[:2], y[:2], x[:1], y[:1]), "b": (x[2:], y[2:], x[3:], y[3:])})
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    settings = {"algorithm": fedfdp.FedAvg(lr=1e-9), "rounds": 1, "metric": absolute_error}
    summary = fedfdp.train(model, holders, **settings).summary
    # |w·x − y| is 1 and 2 at the test records, 1.5 and 3 in the mean at the training records; p = ½, ½.
    assert summary["psi"] == pytest.approx(0.25)
    assert summary["psi_train"] == pytest.approx(0.5625)


def test_by_config(tmp_path):
    settings = [*QUICK, "metric=accuracy"]
    result = launch(configs.load("digits", settings), out=tmp_path / "run")
    assert result.summary["metric"] == "accuracy"
    plain = launch(configs.load("digits", QUICK))
    assert result.summary["psi"] != plain.summary["psi"]
    one, other = configs.load("digits", settings), configs.load("digits", QUICK)
    assert one.fingerprint() != other.fingerprint() == configs.load("digits", [*QUICK, "metric=loss"]).fingerprint()


def test_wrong_metrics_are_one_line(digits):
    for metric, message in [
        ("accurcy", "metric = 'accurcy': did you mean 'accuracy'"),
        ("absent.module:f", "cannot be imported"),
        ("math:pi", "not a function"),
    ]:
        with pytest.raises(SettingError, match=message):
            Performance.of(metric)
    with pytest.raises(SettingError, match="these targets are numbers; take loss"):
        Performance.of("accuracy").check(None)
    with pytest.raises(SettingError, match=r"metric = .*fails on the .* records of client 'client-0': IndexError"):
        run(digits, lambda outputs, targets: outputs[:, 99].mean())


def test_a_client_without_test_records_is_passed_over():
    x, y = torch.eye(4), torch.arange(4) % 2
    holders = Federation.from_clients({"a": (x, y, x, y), "b": (x, y, x[:0], y[:0])})
    result = fedfdp.train(
        torch.nn.Linear(4, 2), holders, algorithm=fedfdp.FedAvg(), rounds=1, metric=lambda outputs, targets: 7.0
    )
    assert result.history[-1]["clients"]["performance"] == [7.0, None]
    assert (result.summary["psi"], result.summary["performance"]) == (0.0, 7.0)
