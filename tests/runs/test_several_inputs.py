"""Records with several inputs from Python, from archives and at nodes, to predictions and files for other programs."""

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fedfdp
from fedfdp.cli.main import app
from fedfdp.core.errors import DataError, SettingError
from fedfdp.engines.flower.messages import Hello
from fedfdp.engines.flower.roster import form_in
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.exported import export
from fedfdp.runs.predict import predict

PRIVATE = fedfdp.DPSGD(epsilon=8.0, q=0.5, delta=1e-5)


class Both(nn.Module):
    """Gives a dict, of which the scores count."""

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.last = nn.Linear(4, 2), nn.Linear(2 + 3, 2)

    def forward(self, picture, table):
        scores = self.last(torch.cat([self.eye(picture).tanh(), table], 1))
        return {"scores": scores, "seen": picture}


class Plain(Both):
    def forward(self, picture, table):
        return super().forward(picture, table)["scores"]


def arrays(count=40, seed=0):
    chance = np.random.default_rng(seed)
    y = chance.integers(0, 2, count)
    x = {"picture": chance.normal(size=(count, 4)), "table": chance.normal(size=(count, 3)) + y[:, None]}
    return {name: part.astype(np.float32) for name, part in x.items()}, y


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        x, y = arrays()
        return {name: part[i] for name, part in x.items()}, int(y[i])


class Rows(list, torch.utils.data.Dataset):
    """These items, as a torch Dataset."""


def test_arrays_tuples_and_datasets_are_the_same_records():
    x, y = arrays()
    torch.manual_seed(0)
    net = Plain()

    def run(records):
        federation = fedfdp.Federation.from_clients({"a": records, "b": records}, classes=2)
        return fedfdp.train(net, federation, privacy=PRIVATE, rounds=2)

    by_name, by_order = run((x, y)), run(((x["picture"], x["table"]), y))
    assert by_name.summary["records"] == by_order.summary["records"] == 60
    read = fedfdp.Federation.from_clients({"a": Items()}, classes=2)
    assert torch.equal(read.x.parts[1], torch.from_numpy(x["table"]))
    assert read.x.names == ("picture", "table")


def test_all_clients_in_one_pass_or_one_by_one_are_the_same(shared_noise):
    x, y = arrays()
    torch.manual_seed(0)
    net, federation = Plain(), fedfdp.Federation.from_clients({"a": (x, y), "b": (x, y), "c": (x, y)})
    method = fedfdp.FedFDP(lr=0.5)
    one, other = (
        fedfdp.train(net, federation, algorithm=method, privacy=PRIVATE, rounds=2, fused=fused)
        for fused in (True, False)
    )
    for name, tensor in one.model.state_dict().items():
        assert torch.allclose(tensor, other.model.state_dict()[name], atol=1e-6), name


def test_persons_with_several_inputs():
    x, y = arrays()
    units = {"a": np.arange(40) // 2, "b": np.arange(40) // 4 + 100}
    federation = fedfdp.Federation.from_clients({"a": (x, y), "b": (x, y)}, units=units)
    assert fedfdp.train(Plain(), federation, privacy=PRIVATE, rounds=1).summary["unit"] == "person"


def test_a_model_that_gives_a_dict_is_predicted_with_and_exported(tmp_path, monkeypatch):
    x, y = arrays()
    federation = fedfdp.Federation.from_clients({"a": (x, y), "b": (x, y)})
    with pytest.raises(SettingError, match=r"output = None.*Both gives scores, seen"):
        fedfdp.train(Both(), federation, rounds=1)
    method = fedfdp.FedAvg(lr=0.5)
    result = fedfdp.train(Both(), federation, algorithm=method, rounds=3, output="scores", out=tmp_path / "run")
    assert result.summary["task"]["output"] == "scores"
    new, _ = arrays(5, seed=1)
    np.savez(tmp_path / "new.npz", **new)
    found = predict(tmp_path / "run", tmp_path / "new.npz", Both())
    tensors = {name: torch.from_numpy(part) for name, part in new.items()}
    with torch.no_grad():
        expected = result.model(**tensors)["scores"].softmax(1).amax(1)
    assert found.columns["probability"] == pytest.approx(expected.tolist(), rel=1e-5)
    export(tmp_path / "run", tmp_path / "both.pt2", Both())
    read = torch.export.load(tmp_path / "both.pt2").module()
    assert torch.allclose(read(**tensors), result.model(**tensors)["scores"], atol=1e-5)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_here.py").write_text(f"from {__name__} import Both\n")
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["predict", "run", "new.npz", "--model", "mine_here:Both"])
    assert (said.exit_code, len(said.output.splitlines())) == (0, 6), said.output
    said = CliRunner().invoke(app, ["export", "run", "--out", "both.pt", "--model", "mine_here:Both"])
    assert said.exit_code == 0, said.output
    np.savez(tmp_path / "half.npz", picture=new["picture"])
    with pytest.raises(DataError, match="no array table"):
        predict(tmp_path / "run", tmp_path / "half.npz", Both())


def test_an_archive_names_its_inputs(tmp_path):
    x, y = arrays()
    np.savez(tmp_path / "all.npz", **x, y=y, who=np.array(["n", "s"])[np.arange(40) % 2])
    settings = [f"data.source={tmp_path}/all.npz", "data.classes=2", "data.holder=who"]
    chosen = [*settings, 'data.inputs=["picture", "table"]']
    federation = federation_of(configs.load("digits", chosen))
    assert federation.names == ("n", "s")
    assert torch.equal(federation.x.parts[0], torch.from_numpy(x["picture"]))
    with pytest.raises(DataError, match=r"no array 'x'; name those .* in data\.inputs: picture, table"):
        federation_of(configs.load("digits", settings))
    np.savez(tmp_path / "all.npz", picture=x["picture"][:9], table=x["table"], y=y, who=y)
    with pytest.raises(DataError, match="9 records in 'picture', 40 in 'table'"):
        federation_of(configs.load("digits", chosen))


def test_places_from_an_archive(tmp_path):
    pictures = np.random.default_rng(0).normal(size=(30, 1, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "all.npz", x=pictures, y=(pictures[:, 0] > 0).astype(np.int64))
    settings = [f"data.source={tmp_path}/all.npz", "data.classes=2", "data.task=segmentation", "data.partition=iid"]
    more = ["data.clients=2", "model.name=torch.nn:Conv2d", "algorithm.name=fedavg", "algorithm.lr=0.5", "rounds=2"]
    taken = "model.arguments={in_channels=1, out_channels=2, kernel_size=1}"
    result = launch(configs.load("digits", [*settings, *more, taken, "privacy=none"]), out=tmp_path / "run")
    assert 0 < result.summary["iou"] <= 1
    np.savez(tmp_path / "new.npz", x=pictures[:2])
    found = predict(tmp_path / "run", tmp_path / "new.npz")
    with torch.no_grad():
        expected = result.model(torch.from_numpy(pictures[:1])).argmax(1).flatten().tolist()
    assert found.columns["classes"][0] == " ".join(map(str, expected))


@pytest.mark.parametrize(
    "inputs", ["[", '[["a", [2], "object"]]', '[["a", [2], "bool"], ["a", [2], "bool"]]', '[["a b", [2], "bool"]]']
)
def test_a_node_that_says_nonsense_of_its_inputs_is_not_believed(inputs):
    with pytest.raises(DataError, match="it says of its inputs"):
        form_in(Hello("north", 1, (2,), 2, 2, True, inputs=inputs))


def test_inputs_are_found_by_name_or_number_in_whatever_order_they_are_given():
    zeros, ones, y = torch.zeros(8, 2), torch.ones(8, 3), torch.arange(8) % 2
    turned = ({1: ones, 0: zeros}, y)
    items = Rows([({1: ones[i], 0: zeros[i]}, y[i]) for i in range(8)])
    federation = fedfdp.Federation.from_clients({"pair": turned, "items": items, "tuple": ((zeros, ones), y)})
    assert [bool(part.any()) for part in federation.x.parts] == [False, True]
    named = {"a": ({"b": ones, "a": zeros}, y), "b": ({"a": zeros, "b": ones}, y)}
    federation = fedfdp.Federation.from_clients(named)
    assert (federation.x.names, [float(part.mean()) for part in federation.x.parts]) == (("b", "a"), [1.0, 0.0])


def test_inputs_that_do_not_fit_are_refused():
    x, y = arrays()
    with pytest.raises(DataError, match="40 in 'picture', 39 in 'table'"):
        fedfdp.Federation.from_clients({"a": ({**x, "table": x["table"][1:]}, y)})
    with pytest.raises(DataError, match="cannot be an argument of a model"):
        fedfdp.Federation.from_clients({"a": ({"a b": x["table"]}, y)})
    with pytest.raises(DataError, match="the first client's picture float32"):
        fedfdp.Federation.from_clients({"a": (x, y), "b": ({"picture": x["picture"]}, y)})
    federation = fedfdp.Federation.from_clients({"a": (x, y), "b": (x, y)})
    with pytest.raises(SettingError, match=r"cannot take records with the inputs picture \(4,\), table \(3,\)"):
        fedfdp.train(nn.Linear(4, 2), federation, rounds=1)
    with pytest.raises(SettingError, match="records have 2 inputs, and features are of one"):
        fedfdp.train(Plain(), federation, rounds=1, features="scattering")
