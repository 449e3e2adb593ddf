import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "compare_adaptive.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compare_adaptive", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(accuracy: float, psi: float) -> dict[str, float]:
    return {"accuracy": accuracy, "psi": psi, "psi_train": psi / 2, "worst_accuracy": accuracy - 0.1}


def test_table_and_verdict_by_hand(script):
    rows = script.table(
        {
            "adaptive": [run(0.90, 0.004), run(0.94, 0.002)],
            "fixed-0": [run(0.95, 0.010), run(0.95, 0.010)],
            "fixed-5": [run(0.93, 0.001), run(0.93, 0.003)],
        }
    )
    assert rows["adaptive"]["accuracy"] == pytest.approx([0.92, 0.02 * 2**0.5])  # deviations ±0.02, over n − 1
    assert rows["fixed-0"]["psi"] == pytest.approx([0.01, 0.0])
    verdict = script.verdict(rows)["psi"]
    assert verdict["best_fixed"] == "fixed-5"
    assert (verdict["ratio"], verdict["accuracy_gap"]) == pytest.approx((1.5, -0.01))


def test_one_seed_has_no_spread(script):
    assert script.table({"adaptive": [run(0.9, 0.1)]})["adaptive"]["psi"] == [0.1, None]


def test_a_finished_run_is_read_and_not_made_again(script, tmp_path, monkeypatch):
    small = ["data.source=digits", "data.clients=2", "data.fraction=0.1", "model.name=linear", "rounds=1"]
    first = script.summary_of(tmp_path / "run", small)
    monkeypatch.setattr(script, "launch", None)
    assert script.summary_of(tmp_path / "run", small) == first
