"""Predictions against the module's own answers, by hand where the model is small enough."""

import csv
import io
import json
import math

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file, save_file

import fedfdp
from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import Federation
from fedfdp.models import outputs
from fedfdp.models.learner import Learner
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.runs.predict import predict
from fedfdp.runs.released import load

X = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]], dtype=np.float32)


def run_with(tmp_path, weight, bias, *, classes):
    """A finished run of a linear model on two features whose weights are then set by hand."""
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) if classes else x[:, 0]
    both = Federation.from_clients({"a": (x[:25], y[:25]), "b": (x[25:], y[25:])}, classes=classes)
    net = torch.nn.Linear(2, len(bias))
    fedfdp.train(net, both, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, out=tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    assert set(load_file(file)) == {"weight", "bias"}
    save_file({"weight": torch.tensor(weight), "bias": torch.tensor(bias)}, file)
    np.savez(tmp_path / "new.npz", x=X, y=np.zeros(3))
    return tmp_path / "run", net


def test_classes_and_probabilities_by_hand(tmp_path):
    # The second class's log odds are 2a − b: 2, −1 and 5 for the three records.
    run, net = run_with(tmp_path, [[0.0, 0.0], [2.0, -1.0]], [0.0, 0.0], classes=2)
    found = predict(run, tmp_path / "new.npz", net)
    assert found.columns["class"] == ["1", "0", "1"]
    expected = [1 / (1 + math.exp(-2)), 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-5))]
    assert found.columns["probability"] == pytest.approx(expected, rel=1e-6)


def test_values_by_hand_and_as_csv(tmp_path):
    run, net = run_with(tmp_path, [[3.0, 0.5]], [1.0], classes=None)
    found = predict(run, tmp_path / "new.npz", net)
    assert found.columns == {"value": [4.0, 1.5, 6.5]}
    text = io.StringIO()
    found.write(text)
    rows = list(csv.reader(text.getvalue().splitlines()))
    assert rows == [["row", "value"], ["1", "4.0"], ["2", "1.5"], ["3", "6.5"]]
    np.savez(tmp_path / "none.npz", x=X[:0])
    assert len(predict(run, tmp_path / "none.npz", net)) == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": X}, "no array x; it has z"),
        ({"x": X[:, :1]}, r"records of shape \(1,\), the run's have \(2,\)"),
        ({"x": np.array([[1.0, np.nan]])}, "row 1: NaN or infinity"),
        ({"x": X.astype(np.int64)}, "x is int64, the run was trained on numbers with a fraction"),
        ({"x": X.astype(np.uint8)}, "x is uint8; scale it to floats"),
        ({"x": np.array([{}])}, "not a .npz file: Object arrays cannot be loaded"),
    ],
)
def test_files_that_do_not_fit(tmp_path, arrays, message):
    run, net = run_with(tmp_path, [[3.0, 0.5]], [1.0], classes=None)
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError, match=message) as raised:
        predict(run, tmp_path / "bad.npz", net)
    assert str(raised.value).startswith(str(tmp_path / "bad.npz"))


def test_files_that_are_none(tmp_path):
    run, net = run_with(tmp_path, [[3.0, 0.5]], [1.0], classes=None)
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "table.csv").write_bytes(b"a,b\n1,2\n")
    for name, message in [
        ("empty.npz", "not a .npz file"),
        ("text.npz", "not a .npz file"),
        ("absent.npz", "cannot be read: No such file"),
        ("table.csv", "give a .npz file with x"),
    ]:
        with pytest.raises(DataError, match=message) as raised:
            predict(run, tmp_path / name, net)
        assert len(str(raised.value).splitlines()) == 1


def own_run(tmp_path, label, weight, bias, settings):
    """A run on a table of one's own; its linear model's weights are then set by hand."""
    rng = np.random.default_rng(0)
    lines = ["ward,age,sex,outcome"]
    for i in range(40):
        lines.append(f"{'north' if i < 25 else 'south'},{rng.integers(0, 101)},{'fm'[i % 2]},{label(i)}")
    (tmp_path / "holders.csv").write_text("\n".join(lines) + "\n")
    data = {"source": "holders.csv", "holder": "ward", "label": "outcome", **settings}
    data["columns"] = {"age": [0, 100], "sex": ["f", "m"]}
    method = {"name": "fedavg", "lr": 0.1}
    config = {"rounds": 1, "data": data, "model": {"name": "linear"}, "algorithm": method}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(config))
    launch(configs.load(str(tmp_path / "run.toml")), out=tmp_path / "run")
    weights = {"1.weight": torch.tensor(weight), "1.bias": torch.tensor(bias)}
    save_file(weights, tmp_path / "run" / "model.safetensors")
    (tmp_path / "new.csv").write_text("sex,age\nf,50\nm,100\nf,0\n")  # no label, another order
    return tmp_path / "run"


def test_your_own_table_in_the_labels_own_units(tmp_path):
    """Age 0 to 100 is −1 to 1 to the model, and its answers −1 to 1 are 100 to 300."""
    run = own_run(tmp_path, lambda i: 100 + 5 * i, [[0.5, 0.1, -0.1]], [0.0], {"target": [100, 300]})
    found = predict(run, tmp_path / "new.csv")
    # 0.5·0 + 0.1 = 0.1, 0.5·1 − 0.1 = 0.4, −0.5 + 0.1 = −0.4
    assert found.columns["value"] == pytest.approx([210.0, 240.0, 160.0])


def test_your_own_table_in_your_own_classes(tmp_path):
    weight = [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    run = own_run(tmp_path, lambda i: "yes" if i % 3 else "no", weight, [0.0, 0.1], {"classes": ["no", "yes"]})
    found = predict(run, tmp_path / "new.csv")
    assert found.columns["class"] == ["yes", "yes", "no"]
    odds = [0.1, 2.1, 1.9]
    assert found.columns["probability"] == pytest.approx([1 / (1 + math.exp(-o)) for o in odds])
    (tmp_path / "bad.csv").write_text("sex,age\nf,old\n")
    with pytest.raises(DataError, match=r"bad\.csv, row 1, column 'age'"):
        predict(run, tmp_path / "bad.csv")


def test_the_summary_notes_what_the_model_takes(tmp_path):
    run, _ = run_with(tmp_path, [[3.0, 0.5]], [1.0], classes=None)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["task"] == {"input_shape": [2], "classes": None, "outputs": 1, "tokens": False}


def named_run(tmp_path, task, classes, y, net):
    """A finished run on three features with these names of labels, or of the classes of two places."""
    x = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    np.savez(tmp_path / "all.npz", x=x, y=y, who=np.array(["a", "b"])[np.arange(len(y)) % 2])
    np.savez(tmp_path / "new.npz", x=x[:2])
    (tmp_path / "nets_named.py").write_text(
        "from torch import nn\n"
        "class Labels(nn.Linear):\n    def __init__(self):\n        super().__init__(3, 3)\n"
        "class Places(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(3, 6), nn.Unflatten(1, (2, 3)))\n"
    )
    data = {"source": "all.npz", "holder": "who", "task": task, "classes": classes}
    method = {"name": "fedavg", "lr": 0.1}
    config = {"rounds": 1, "data": data, "model": {"name": f"nets_named:{net}"}, "algorithm": method}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(config))
    result = launch(configs.load(str(tmp_path / "run.toml")), out=tmp_path / "run")
    with torch.no_grad():
        return result.model(torch.from_numpy(x[:2]))


@pytest.mark.parametrize(("classes", "names"), [(["a", "b c", "d"], ["a", "b c", "d"]), (2, ["0", "1", "2"])])
def test_labels_have_their_names(tmp_path, monkeypatch, classes, names):
    monkeypatch.syspath_prepend(tmp_path)
    y = np.random.default_rng(1).integers(0, 2, (20, 3))
    output = named_run(tmp_path, "multi-label", classes, y, "Labels")
    found = predict(tmp_path / "run", tmp_path / "new.npz").columns
    assert list(found) == [f"label_{name}" for name in names]
    expected = 1 / (1 + np.exp(-output.numpy()))
    assert np.stack(list(found.values()), 1) == pytest.approx(expected, rel=1e-5)


def test_every_label_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError) as error:
        named_run(tmp_path, "multi-label", ["a", "b"], np.ones((20, 3), dtype=int), "Labels")
    said = "data.classes = ('a', 'b'): names 2 labels, and records have 3; name every label"
    assert str(error.value) == said


@pytest.mark.parametrize(("classes", "names"), [(["O", "P", "Q"], "OPQ"), (["O", "P", "not one"], "012"), (3, "012")])
def test_places_have_the_names_of_their_classes(tmp_path, monkeypatch, classes, names):
    monkeypatch.syspath_prepend(tmp_path)
    y = np.random.default_rng(1).integers(0, 3, (20, 2))
    output = named_run(tmp_path, "tokens", classes, y, "Places")
    best = output.argmax(-1).tolist()
    found = predict(tmp_path / "run", tmp_path / "new.npz").columns
    assert found == {"classes": [f"{names[one]} {names[other]}" for one, other in best]}


def test_records_with_many_outputs_are_taken_a_few_at_a_time(tmp_path, monkeypatch):
    assert outputs.at_once(1024, 2) == 1024
    assert outputs.at_once(1024, 64 * 50257) == 5  # GPT-2's words at 64 places: 3.2 million numbers a record
    assert outputs.at_once(1024, 2**25) == 1
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(outputs, "MOST_AT_ONCE", 20)  # of a record's 6 numbers: 3 records
    seen = []
    judge = Learner.judge
    monkeypatch.setattr(Learner, "judge", lambda self, w, x, y: seen.append(len(x)) or judge(self, w, x, y))
    named_run(tmp_path, "tokens", 3, np.random.default_rng(1).integers(0, 3, (20, 2)), "Places")
    assert max(seen) == 3
    x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    np.savez(tmp_path / "new.npz", x=x)
    net = load(tmp_path / "run")
    net.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    monkeypatch.setattr("fedfdp.runs.predict.load", lambda *_, **__: net)
    del seen[:]
    found = predict(tmp_path / "run", tmp_path / "new.npz").columns["classes"]
    assert seen == [2, 3, 3, 2]  # the first two tell how many numbers a record gives
    with torch.no_grad():
        assert found == [" ".join(map(str, best)) for best in net(torch.from_numpy(x)).argmax(-1).tolist()]
