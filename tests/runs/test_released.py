"""A run's model for use: loaded, exported and read back by other libraries, against the module that was trained."""

import importlib.util
import json
import warnings

import pytest
import safetensors
import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.core.errors import RunError, SettingError
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.runs.exported import export
from frozen_net import FrozenNet

QUICK = ["data.fraction=0.2", "data.clients=3", "rounds=2", "model.name=mlp", "model.arguments={hidden=[16]}"]
RECORDS = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run's folder, and what its model says of some records."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    result = launch(configs.load("digits", QUICK), out=out)
    with torch.no_grad():
        return out, result.model(RECORDS)


def test_three_lines_of_python(trained):
    run, expected = trained
    model = fedfdp.load(run)
    assert not model.training
    with torch.no_grad():
        assert torch.equal(model(RECORDS), expected)


def test_the_weights_are_the_released_ones_not_the_last(tmp_path):
    """With an averaged model handed out, that is what is loaded."""
    result = launch(configs.load("digits", [*QUICK, "server.average=0.5"]), out=tmp_path / "run")
    for name, tensor in fedfdp.load(tmp_path / "run").state_dict().items():
        assert torch.equal(tensor, result.model.state_dict()[name])
    plain = launch(configs.load("digits", QUICK))
    assert not torch.equal(plain.model[1].weight, result.model[1].weight)


class Tied(nn.Module):
    """Two layers that share their weight: state_dict names it twice, training once."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.one, self.two, self.head = nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.two(self.one(self.flat(x)).tanh()))
        return out


@pytest.mark.parametrize("make", [Tied, lambda: FrozenNet(freeze=True)], ids=["tied weights", "frozen backbone"])
def test_a_module_of_yours_is_given_once_more(digits, tmp_path, make):
    net = make()
    result = fedfdp.train(net, digits, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"was trained from Python, on a module of yours; give it: fedfdp\.load"):
        fedfdp.load(tmp_path / "run")
    with torch.no_grad():
        assert torch.equal(fedfdp.load(tmp_path / "run", make())(RECORDS), result.model(RECORDS))
    with pytest.raises(RunError, match="holds the weights of another model than Linear: Missing key"):
        fedfdp.load(tmp_path / "run", nn.Linear(64, 10))


def test_safetensors_say_what_they_are(trained, tmp_path):
    run, _ = trained
    export(run, tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["fedfdp"])
        names = set(file.keys())
        assert file.get_tensor("3.bias").shape == (10,)
    assert names == {"1.weight", "1.bias", "3.weight", "3.bias"}
    assert about["model"] == {"name": "mlp", "arguments": {"hidden": [16]}}
    assert about["task"] == {"input_shape": [1, 8, 8], "classes": 10, "outputs": 10, "tokens": False}
    assert 0 < about["epsilon"] <= 3.52


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_and_torch_export_need_no_fedfdp(trained, tmp_path):
    run, expected = trained
    export(run, tmp_path / "model.pt")
    export(run, tmp_path / "model.pt2")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        script = torch.jit.load(tmp_path / "model.pt")
        program = torch.export.load(tmp_path / "model.pt2").module()
        for few in (1, 7):  # any number of records
            torch.testing.assert_close(script(RECORDS[:few]), expected[:few])
            torch.testing.assert_close(program(RECORDS[:few]), expected[:few])


@pytest.mark.skipif(importlib.util.find_spec("onnx") is not None, reason="onnx is installed")
def test_onnx_says_what_it_lacks(trained, tmp_path):
    with pytest.raises(SettingError, match=r"needs onnx, which is not installed; pip install 'fedfdp\[onnx\]'"):
        export(trained[0], tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_onnx(trained, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, expected = trained
    export(run, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    for few in (1, 7):
        (got,) = session.run(None, {session.get_inputs()[0].name: RECORDS[:few].numpy()})
        torch.testing.assert_close(torch.from_numpy(got), expected[:few], rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    """What it computes depends on what it sees, which no trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        out: Tensor = self.head(x) if len(x) > 2 else self.head(-x)
        return out


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_cannot_be_written_is_one_line_and_no_file(digits, tmp_path):
    fedfdp.train(Branches(), digits, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, out=tmp_path / "run")
    for name, reason in (("m.pt", "would not give what the model gives"), ("m.pt2", "torch cannot write this model")):
        with pytest.raises(RunError, match=reason) as raised:
            export(tmp_path / "run", tmp_path / name, Branches())
        assert len(str(raised.value).splitlines()) == 1
        assert not (tmp_path / name).exists()


def test_a_run_across_machines_is_loaded_in_the_same_way():
    """Its summary says what the nodes said of their records."""
    from fedfdp.engines.flower.messages import Hello
    from fedfdp.engines.flower.roster import Roster

    nodes = Roster(("north",), None, {"north": Hello("north", 10, (3, 4), None, 2, True)})
    assert (nodes.input_shape, nodes.classes, nodes.outputs, nodes.tokens) == ((3, 4), None, 2, False)
