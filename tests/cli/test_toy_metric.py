"""A metric that is declared once appears everywhere: terminal, summary, history, report, tables, tracking."""

import csv
import json
import re
import statistics
import sys
import types

import numpy as np
import pytest
import torch

import fedfdp
from fedfdp.core.errors import SettingError
from toys import toy_metrics

QUICK = ("digits", "--set", "rounds=2", "--set", "eval_every=1", "--set", "data.clients=3")


@pytest.fixture(autouse=True)
def toys():
    with toy_metrics():
        yield


def test_a_metric_of_the_results_is_everywhere(fedfdp, tmp_path, monkeypatch):
    logged = {}

    class SummaryWriter:
        def __init__(self, folder):
            pass

        def add_scalar(self, name, value, step):
            logged[name, step] = value

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    code, out, err = fedfdp("run", *QUICK, "--out", "run", "--report", "--log", "tensorboard")
    assert code == 0
    history = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    medians = [statistics.median(entry["clients"]["loss"]) for entry in history]
    assert [entry["median_loss"] for entry in history] == pytest.approx(medians)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["median_loss"] == history[-1]["median_loss"]

    assert re.search(rf"^median client +{medians[-1]:.4f} *$", out, flags=re.MULTILINE)
    assert f"median {medians[-1]:.4f}" in err
    assert [logged["median_loss", step] for step in (1, 2)] == pytest.approx(medians)
    for command in (("show", "run"), ("runs", "list", ".")):
        _, out, _ = fedfdp(*command)
        assert "median" in out
        assert f"{medians[-1]:.4f}" in out
    _, out, _ = fedfdp("runs", "list", ".", "--json")
    assert json.loads(out)[0]["median_loss"] == history[-1]["median_loss"]
    fedfdp("runs", "export", ".", "--out", "all.csv")
    with open("all.csv", encoding="utf-8") as file:
        assert [float(row["median_loss"]) for row in csv.DictReader(file)] == pytest.approx(medians)

    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    facts = json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', page).group(1))
    (run,) = facts["runs"]
    assert run["result"]["median_loss"] == history[-1]["median_loss"]
    assert run["history"]["median_loss"] == [entry["median_loss"] for entry in history]
    declared = facts["metrics"]["median_loss"]
    assert (declared["title"], declared["form"], declared["better"]) == ("median client", "number", "lower")
    for place in ("line", "column", "curve"):
        assert facts["shown"]["classification"][place][-1] == "median_loss"


def test_a_metric_of_the_outputs_is_kept_by_client_and_can_be_what_psi_is_of(fedfdp, tmp_path):
    code, _, _ = fedfdp("run", *QUICK, "--out", "run", "--set", "metric=zeros", "--report")
    assert code == 0
    entry = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-1]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    shares = np.array(json.loads((tmp_path / "run" / "clients.json").read_text())["train"], dtype=float)
    shares /= shares.sum()
    values = np.array(entry["clients"]["zeros"])
    assert len(values) == 3
    assert entry["zeros"] == summary["zeros"] == pytest.approx(shares @ values)
    assert entry["psi"] == pytest.approx(shares @ (values - shares @ values) ** 2)
    assert summary["metric"] == "zeros"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    facts = json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', page).group(1))
    assert facts["runs"][0]["clients"]["zeros"][-1] == entry["clients"]["zeros"]


def test_its_values_are_those_of_the_model(digits):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    result = fedfdp.train(model, digits, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1)
    for client, value in zip(digits.clients, result.history[-1]["clients"]["zeros"], strict=True):
        x, _ = client.test.take()
        with torch.no_grad():
            guesses = result.model(x).argmax(1).tolist()
        assert value == pytest.approx(guesses.count(0) / len(guesses))


def test_where_the_task_has_none_it_is_left_out_and_cannot_be_chosen(two_clients):
    run = {"algorithm": fedfdp.FedAvg(lr=0.1), "rounds": 1}
    entry = fedfdp.train(torch.nn.Linear(2, 1), two_clients, **run).history[-1]
    assert "zeros" not in entry
    assert "zeros" not in entry["clients"]
    assert entry["median_loss"] == pytest.approx(statistics.median(entry["clients"]["loss"]))
    with pytest.raises(SettingError, match="metric = 'zeros': only for classes, and these targets are numbers"):
        fedfdp.train(torch.nn.Linear(2, 1), two_clients, **run, metric="zeros")
