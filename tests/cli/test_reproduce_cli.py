import json

import pytest

TWO = ("reproduce", "table3", "--scale", "smoke", "--dataset", "mnist", "--methods", "fedavg,fedfdp", "--jobs", "2")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One sweep for all tests of this file: what is done is not done again."""
    return tmp_path_factory.mktemp("sweep")


def test_a_table_is_measured_once_and_then_only_shown(fedfdp, kept, tmp_path):
    code, out, err = fedfdp(*TWO, "--out", kept, "--json")
    assert code == 0, err
    document = json.loads(out)
    cells = {cell["row"]: cell for cell in document["cells"]}
    assert set(cells) == {"fedavg", "fedfdp"}
    assert cells["fedavg"]["paper"]["value"] == 93.40
    for cell in cells.values():
        (run,) = cell["runs"]
        assert run["rounds"] == 8
        assert 0 < run["epsilon"] <= 3.52
        summary = json.loads(next(kept.glob(f"*-{run['config']}/summary.json")).read_text())
        assert cell["accuracy"] == {"mean": summary["accuracy"], "spread": None}
        assert cell["psi"]["mean"] == summary["psi"]
    assert err.count("started") == 2
    code, again, err = fedfdp(*TWO, "--out", kept, "--json", "--save", "results")
    assert code == 0
    assert json.loads(again) == document
    assert "started" not in err
    saved = tmp_path / "results"
    assert json.loads((saved / "table3-mnist-smoke.json").read_text()) == document
    assert "| FedAvg |" in (saved / "table3-mnist-smoke.md").read_text()
    assert all((saved / f"table3-mnist-smoke.{kind}").stat().st_size > 5_000 for kind in ("png", "pdf"))
    code, shown, _ = fedfdp(*TWO, "--out", kept)
    assert "93.40 ± 0.47" in shown
    assert "scale smoke, seed 0" in shown


def test_table1_counts_bytes(fedfdp):
    """Two models' worth of SCAFFOLD, one of everyone else, and a few hundred bytes of names and numbers."""
    code, out, _ = fedfdp("reproduce", "table1", "--json")
    assert code == 0
    rows = {row["row"]: row for row in json.loads(out)["cells"]}
    assert rows["scaffold"]["up_models"] == pytest.approx(2, abs=0.05)
    for name in ("fedavg", "fedprox", "feddyn", "qffl", "fedfdp-paper", "fedfdp"):
        assert rows[name]["up_models"] == pytest.approx(1, abs=0.05)
    assert rows["fedfdp"]["up"] > rows["fedavg"]["up"]
    code, out, _ = fedfdp("reproduce", "table1")
    assert "O(2d)" in out


def test_runs_of_a_sweep_can_be_listed_compared_exported_and_pruned(fedfdp, kept, tmp_path):
    fedfdp(*TWO, "--out", kept)
    code, out, _ = fedfdp("runs", "list", kept, "--json")
    listed = json.loads(out)
    assert [(run["method"], run["state"]) for run in listed] == [("fedavg", "done"), ("fedfdp", "done")]
    code, out, _ = fedfdp("runs", "show", listed[0]["run"], "--json")
    assert json.loads(out)["result"]["accuracy"] == listed[0]["accuracy"]
    code, out, _ = fedfdp("runs", "compare", kept, "--json")
    assert [run["algorithm.name"] for run in json.loads(out)] == ["fedavg", "fedfdp"]
    assert "data.beta" not in json.loads(out)[0]
    for command in ("list", "compare"):
        code, out, _ = fedfdp("runs", command, kept)
        assert code == 0
        assert "fedfdp" in out
    code, out, _ = fedfdp("runs", "export", kept, "--out", "all.csv")
    assert "of 2 runs in all.csv" in out
    assert (tmp_path / "all.csv").read_text().startswith("run,round,accuracy")
    checkpoints = list(kept.glob("*/checkpoint"))
    assert len(checkpoints) == 2
    code, out, _ = fedfdp("runs", "prune", kept, "--checkpoints")
    assert "would delete" in out
    assert all(path.exists() for path in checkpoints)
    fedfdp("runs", "prune", kept, "--checkpoints", "--yes")
    assert not any(path.exists() for path in checkpoints)
    assert len(list(kept.glob("*/ledger.jsonl"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "tabel3"), "did you mean 'table3'"),
        (("reproduce", "table3", "--scale", "papr"), "did you mean 'paper'"),
        (("reproduce", "table3", "--dataset", "minst"), "did you mean 'mnist'"),
        (("reproduce", "table3", "--methods", "fedavg,fedfpd"), "did you mean 'fedfdp'"),
        (("reproduce", "table3", "--log", "wandb"), "--log = 'wandb'"),
        (("runs", "list", "nowhere"), "nowhere holds no run"),
        (("runs", "prune", "nowhere"), "give --checkpoints or --unfinished"),
        (("runs", "export", "nowhere", "--format", "xls"), "nowhere holds no run"),
    ],
)
def test_bad_input_is_one_line(fedfdp, arguments, message):
    code, out, err = fedfdp(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
