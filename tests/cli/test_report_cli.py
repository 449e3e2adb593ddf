"""fedfdp report from the command line, and what fedfdp run says of it."""

import json
import re
import sys
import types

import pytest

QUICK = ("digits", "--set", "rounds=2", "--set", "eval_every=1", "--set", "data.clients=3")


def facts(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', text).group(1))


def test_a_run_and_a_sweep_become_pages(fedfdp, tmp_path):
    for name in ("one", "two"):
        code, out, _ = fedfdp("run", *QUICK, "--out", f"all/{name}")
        assert code == 0
        assert out.splitlines()[-1] == f"see it as a page: fedfdp report all/{name}"
    code, out, err = fedfdp("report", "all/one")
    assert (code, out, err) == (0, "report of 1 run: all/one/report.html\n", "")
    run = facts(tmp_path / "all/one/report.html")["runs"][0]
    summary = json.loads((tmp_path / "all/one/summary.json").read_text())
    assert (run["result"]["accuracy"], run["result"]["epsilon"]) == (summary["accuracy"], summary["epsilon"])
    assert sum(map(sum, run["clients"]["classes"])) == summary["records"]

    code, out, _ = fedfdp("report", "all", "--out", "pages/all.html", "--figures", "figures")
    assert code == 0
    assert out.startswith("report of 2 runs: pages/all.html\nfigures: figures/curves.pdf, figures/pareto.pdf")
    assert [run["name"] for run in facts(tmp_path / "pages/all.html")["runs"]] == ["one", "two"]
    assert (tmp_path / "figures/pareto.png").is_file()

    code, out, _ = fedfdp("report", "all/one", "all/two")
    assert out == "report of 2 runs: report.html\n"


def test_what_cannot_be_reported_is_one_line(fedfdp, tmp_path):
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "empty"):
        code, out, err = fedfdp("report", place)
        assert (code, out) == (2, "")
        assert err.startswith(f"fedfdp: {place} holds no run")
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "nowhere").exists()


def test_run_writes_the_report_when_asked(fedfdp, tmp_path):
    code, out, _ = fedfdp("run", *QUICK, "--out", "my run", "--report")
    assert code == 0
    assert out.splitlines()[-1] == "report: my run/report.html"
    assert facts(tmp_path / "my run" / "report.html")["runs"][0]["name"] == "my run"
    _, out, _ = fedfdp("run", *QUICK, "--out", "my other")
    assert out.splitlines()[-1] == "see it as a page: fedfdp report 'my other'"
    _, out, _ = fedfdp("run", *QUICK, "--out", "json", "--report", "--json")
    assert json.loads(out)["rounds"] == 2
    assert (tmp_path / "json" / "report.html").is_file()


def test_run_logs_where_it_is_told_to(fedfdp, tmp_path, monkeypatch):
    logged = []

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, step):
            logged.append((self.folder, name, value, step))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    code, out, _ = fedfdp("run", *QUICK, "--out", "runs/mine", "--log", "tensorboard", "--json")
    assert code == 0
    accuracies = [(folder, value, step) for folder, name, value, step in logged if name == "accuracy"]
    assert [(folder, step) for folder, _, step in accuracies] == [
        ("runs/tensorboard/mine", 1),
        ("runs/tensorboard/mine", 2),
    ]
    assert accuracies[-1][1] == json.loads(out)["accuracy"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tensorbord", "did you mean 'tensorboard'?"),
        ("mlflow", "mlflow is not installed; pip install 'fedfdp[mlflow]'"),
    ],
)
def test_a_log_that_cannot_be_written_is_said_before_anything_starts(fedfdp, tmp_path, monkeypatch, kind, message):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    code, out, err = fedfdp("run", *QUICK, "--out", "run", "--log", kind)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
