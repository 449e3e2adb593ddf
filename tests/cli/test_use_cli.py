"""fedfdp export and fedfdp predict."""

import csv
import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import fedfdp as library
from fedfdp.data import load

QUICK = ("--set", "rounds=2", "--set", "data.fraction=0.2", "--set", "model.name=linear")


@pytest.fixture
def run(fedfdp, tmp_path):
    code, _, err = fedfdp("run", "digits", *QUICK, "--out", "mine")
    assert code == 0, err
    raw = load_digits().images[:50, None]  # numbers from 0 to 16, as they come
    np.savez(tmp_path / "new.npz", x=raw)
    return "mine"


def test_export_and_load(fedfdp, run, tmp_path):
    code, out, _ = fedfdp("export", run)
    assert code == 0
    assert out.startswith("mine.safetensors: ")
    assert (tmp_path / "mine.safetensors").stat().st_size > 4 * 650
    code, out, _ = fedfdp("export", run, "--to", "other.pt2")
    assert code == 0
    assert (tmp_path / "other.pt2").exists()


def test_predict(fedfdp, run, tmp_path):
    model = library.load(run)
    with torch.no_grad():
        right = model(load("digits").x[:50]).softmax(1).max(1)
    code, out, _ = fedfdp("predict", run, "new.npz", "--out", "p.csv")
    assert (code, out) == (0, "50 predictions in p.csv\n")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert [int(row["class"]) for row in rows] == right.indices.tolist()
    assert [float(row["probability"]) for row in rows] == pytest.approx(right.values.tolist())
    code, out, _ = fedfdp("predict", run, "new.npz", "--json")
    assert code == 0
    assert json.loads(out)["predictions"][0] == {
        "class": str(int(right.indices[0])),
        "probability": pytest.approx(float(right.values[0])),
    }
    code, out, _ = fedfdp("predict", run, "new.npz")
    assert out.splitlines()[0] == "row,class,probability"
    assert len(out.splitlines()) == 51


def test_bad_input_is_one_line_and_exit_code_2(fedfdp, run, tmp_path):
    np.savez(tmp_path / "wrong.npz", x=np.zeros((2, 3)))
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "7.png").write_bytes(b"png")
    takes = "this run was trained on digits, images of 1×8×8; give an .npz file with an array x of such images, "
    for arguments, message in [
        (("export", "nowhere"), "nowhere is not a run folder"),
        (("export", run, "--out", "model.h5"), "must end in one of .safetensors, .pt, .pt2, .onnx"),
        (("export", run, "--out", "absent/model.safetensors"), "cannot be written"),
        (("export", run, "--to", "absent/model.pt"), "cannot be written"),
        (("predict", "nowhere", "new.npz"), "nowhere is not a run folder"),
        (("predict", run, "absent.npz"), "absent.npz: no such file; check the path"),
        (("predict", run, "rows.csv"), f"rows.csv: {takes}values 0 to 16, or a folder of image files"),
        (("predict", run, "7.png"), f"7.png: {takes}"),
        (("predict", run, "wrong.npz"), "records of shape (3,), the run's have (1, 8, 8)"),
        (("predict", run, "new.npz", "--out", "absent/p.csv"), "--out = 'absent/p.csv': cannot be written"),
    ]:
        code, out, err = fedfdp(*arguments)
        assert code == 2, arguments
        assert out == ""
        assert message in err
        assert len(err.strip().splitlines()) == 1
    (tmp_path / run / "summary.json").unlink()
    code, _, err = fedfdp("export", run)
    assert code == 2
    assert "is not finished; continue it with: fedfdp run --resume mine" in err
