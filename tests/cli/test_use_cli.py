"""fedfdp export and fedfdp predict."""

import csv
import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import fedfdp as library
from fedfdp.data import load
from fedfdp.runs.predict import predict

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


MINE = """import torch
import fedfdp

def never(output, y):
    return output.new_full((len(y),), torch.nan)

COUNTS = fedfdp.Task("counts", lambda o, y: o.exp() - y.reshape(len(y)) * o, never, targets="numbers", single=True)
FIRST = fedfdp.Task("first", lambda o, y: o.flatten(1).mean(1), never, targets="places", axis=1)

class Log(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 1)

    def forward(self, x):
        return super().forward(x)[:, 0]
"""


def test_a_task_of_ones_own_by_its_path_or_as_it_is(fedfdp, tmp_path, monkeypatch):
    (tmp_path / "tasks_here.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    y = np.exp(x[:, 0])
    np.savez("all.npz", x=x, y=y, who=np.array(["a", "b"])[np.arange(40) % 2])
    np.savez("new.npz", x=x[:3])
    data = '[data]\nsource = "all.npz"\nholder = "who"\ntask = "tasks_here:COUNTS"\n'
    rest = '[model]\nname = "tasks_here:Log"\n[algorithm]\nname = "fedavg"\nlr = 0.1\n'
    (tmp_path / "run.toml").write_text(f"rounds = 1\n{data}{rest}")
    code, _, err = fedfdp("run", "run.toml", "--out", "toml")
    assert code == 0, err
    import tasks_here as mine

    for name, task in (("path", "tasks_here:COUNTS"), ("object", mine.COUNTS)):
        clients = library.Federation.from_clients({"a": (x, y), "b": (x, y)}, task=task)
        library.train(mine.Log(), clients, algorithm=library.FedAvg(lr=0.1), rounds=1, out=name)
    for name, model in (
        ("toml", ()),
        ("path", ("--model", "tasks_here:Log")),
        ("object", ("--model", "tasks_here:Log")),
    ):
        net = library.load(name, mine.Log() if model else None)
        code, out, err = fedfdp("predict", name, "new.npz", *model)
        assert code == 0, err
        found = [float(row["value"]) for row in csv.DictReader(out.splitlines())]
        assert found == pytest.approx((x[:3] @ net.weight[0].detach().numpy() + net.bias.item()).tolist(), rel=1e-5)
        code, _, err = fedfdp("export", name, "--out", "net.pt2", *model)
        assert code == 0, err
    # Classes of places, along another dimension than the usual one: the likeliest of two in each of three places.
    places = library.Federation.from_clients({"a": (x, np.zeros((40, 3), dtype=int))}, classes=2, task=mine.FIRST)
    net = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Unflatten(1, (2, 3)))
    made = library.train(net, places, algorithm=library.FedAvg(lr=0.1), rounds=1, out="places").model
    expected = made(torch.from_numpy(x[:3])).argmax(1)
    assert predict("places", "new.npz", net).columns["classes"] == [" ".join(map(str, r.tolist())) for r in expected]
