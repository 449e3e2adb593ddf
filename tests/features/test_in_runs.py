"""Features as a part of the model: trained with, loaded, predicted with, exported, resumed."""

import json

import numpy as np
import pytest
import torch

import fedfdp
from feature_maps import Cosines
from fedfdp.core.errors import RunError, SettingError
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.runs.exported import export
from fedfdp.runs.predict import predict
from fedfdp.runs.released import load

TINY = ["data.clients=3", "data.beta=1.0", "data.fraction=0.2", "rounds=2", "privacy=none", "threads=1"]
HEAD = ["features.name=feature_maps:Cosines", "model.name=linear", "algorithm.name=fedavg", "algorithm.lr=0.5"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path):
    result = launch(configs.load("digits", [*TINY, *HEAD]), out=tmp_path / "run")
    return tmp_path / "run", result


def records():
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(3)) * 2 - 1


def test_the_model_takes_records_as_they_are(run):
    path, result = run
    weights = result.model.head[1]
    by_hand = (records().flatten(1) @ Cosines().weight).cos() @ weights.weight.T + weights.bias
    assert torch.allclose(result.model(records()), by_hand, atol=1e-5)
    assert torch.equal(load(path)(records()), result.model(records()))
    assert result.summary["weights"] == 20 * 10 + 10
    assert result.summary["data"] == "digits (own features)"


def test_predict_and_export_include_them(run, tmp_path):
    path, result = run
    pixels = np.random.default_rng(0).integers(0, 17, size=(5, 1, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "new.npz", x=pixels)
    expected = result.model(torch.from_numpy(pixels / 8 - 1).float()).argmax(1)
    assert predict(path, tmp_path / "new.npz").columns["class"] == [str(int(c)) for c in expected]
    export(path, tmp_path / "net.pt2")
    again = torch.export.load(tmp_path / "net.pt2").module()
    assert torch.allclose(again(records()), result.model(records()), atol=1e-5)
    export(path, tmp_path / "net.safetensors")
    header = (tmp_path / "net.safetensors").read_bytes()[:4000].decode(errors="ignore")
    assert "feature_maps:Cosines" in header


def test_other_features_than_the_run_s_are_refused(run):
    path, _ = run
    with pytest.raises(RunError, match="other features than feature_maps:Cosines"):
        load(path, features=Cosines(outputs=20, inputs=64).requires_grad_(False).double())
    plain = json.loads((path / "summary.json").read_text())
    del plain["features"]
    (path / "summary.json").write_text(json.dumps(plain))
    with pytest.raises(RunError, match="trained without features"):
        load(path, features="scattering")


def test_a_run_with_features_resumes_to_the_same_bits(tmp_path):
    config = configs.load("digits", [*TINY, *HEAD, "rounds=4", "eval_every=1"])
    straight = launch(config)

    def stop(update):
        if update.step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(config, out=tmp_path / "half", on_update=stop)
    rest = launch(config, out=tmp_path / "half", resume=True)
    assert torch.equal(rest.model.head[1].weight, straight.model.head[1].weight)


def test_from_python_by_name_and_as_a_module(tmp_path):
    x = torch.randn(80, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    clients = fedfdp.Federation.from_clients({"a": (x[:40], torch.arange(40) % 2), "b": (x[40:], torch.arange(40) % 2)})
    method = fedfdp.FedAvg(lr=0.1)
    heads = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(81 * 9, 2))
    fedfdp.train(heads, clients, algorithm=method, rounds=1, features="scattering", out=tmp_path / "one")
    assert fedfdp.load(tmp_path / "one", heads)(x[:3]).shape == (3, 2)
    head = torch.nn.Linear(20, 2)
    own = Cosines(inputs=144)
    result = fedfdp.train(head, clients, algorithm=method, rounds=1, features=own, out=tmp_path / "two")
    assert own.weight.requires_grad  # what is given stays as it is
    with pytest.raises(RunError, match="give it: features="):
        fedfdp.load(tmp_path / "two", head)
    assert torch.equal(fedfdp.load(tmp_path / "two", head, features=own)(x), result.model(x))


def test_the_head_must_fit_the_features():
    with pytest.raises(SettingError, match="at least 12×12"):
        launch(configs.load("digits", [*TINY, "features.name=scattering"]))


def test_features_none_takes_them_out_of_a_preset():
    with_them = configs.load("digits", HEAD)
    assert with_them.features is not None
    assert configs.load("digits", [*HEAD, "features=none"]).features is None
