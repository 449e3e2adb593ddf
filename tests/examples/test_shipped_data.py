"""The examples on scikit-learn's data: unequal holders, what they reach beside pooled training, and the notebook."""

import csv
import importlib.util
import json
from collections import Counter
from pathlib import Path

import matplotlib
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hospitals_are_unequal_and_see_different_tumours(tmp_path):
    example(EXAMPLES / "breast_cancer" / "holders.py").write(tmp_path / "holders.csv", 0)
    with (tmp_path / "holders.csv").open() as file:
        rows = list(csv.DictReader(file))
    sizes = Counter(row["hospital"] for row in rows)
    assert sum(sizes.values()) == 569
    assert sorted(sizes.values()) == pytest.approx([569 * share for share in (0.08, 0.12, 0.18, 0.26, 0.36)], abs=1)
    ill = Counter(row["hospital"] for row in rows if row["diagnosis"] == "malignant")
    shares = [ill[hospital] / size for hospital, size in sizes.items()]
    assert sum(ill.values()) == 212
    assert max(shares) - min(shares) > 0.5


def test_breast_cancer_beside_the_pooled_model():
    """On the first partition that nothing was chosen on."""
    found = example(EXAMPLES / "measure.py").measure("breast_cancer", 0)
    pooled, plain, private = (found[name][0] for name in ("pooled", "FedAvg, without privacy", "FedFDP, ε = 3"))
    assert pooled > 0.95
    assert pooled - plain <= 0.01 + 1 / 144  # one test record is 0.7 points
    assert pooled - private <= 0.08
    assert found["FedFDP, ε = 3"][1] > 0.8  # the worst hospital


@pytest.mark.slow
def test_breast_cancer_over_ten_partitions():
    measure = example(EXAMPLES / "measure.py").measure
    runs = [measure("breast_cancer", seed) for seed in range(10)]
    behind = {name: [run["pooled"][0] - run[name][0] for run in runs] for name in runs[0]}
    assert sum(behind["FedAvg, without privacy"]) / 10 <= 0.01
    assert max(behind["FedFDP, ε = 3"]) <= 0.08


def test_the_notebook_runs_and_keeps_no_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names = {}
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    summary = names["result"].summary
    assert names["planned"].rounds == summary["rounds"]
    assert summary["epsilon"] <= 3.0
    assert summary["accuracy"] > 0.85
