"""From your own files to clients, to a run, and back to what its outputs mean."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import Federation, meaning, read_inputs
from fedfdp.data.files.read import FileRecords
from fedfdp.data.from_files import federation_of_records
from fedfdp.data.predictions import Meaning
from fedfdp.data.schema import Facts
from fedfdp.models.losses import loss_at
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.config import Config, Data, Model
from fedfdp.runs.train import train
from own_files import CSV, facts

X = torch.arange(40.0).reshape(20, 2)
Y = torch.arange(20) % 2


def pool(holders=("a", "b"), owner=None, test=None):
    owner = np.arange(20) % 4 // 3 if owner is None and holders else owner  # 15 records of a, 5 of b
    return FileRecords("t.csv", X, Y, 2, holders, owner, test)


def test_the_clients_are_those_that_the_records_name():
    federation = federation_of_records(pool(), test_fraction=0.25, seed=3)
    assert [(c.name, len(c.train), len(c.test)) for c in federation.clients] == [("a", 11, 4), ("b", 3, 2)]
    assert federation.x.data_ptr() == X.data_ptr()  # nothing was copied
    together = torch.cat([torch.cat([c.train.index, c.test.index]) for c in federation.clients])
    assert together.sort().values.tolist() == list(range(20))
    assert all(i % 4 == 3 for i in federation.clients[1].train.index.tolist())


def test_the_same_split_as_of_clients_given_from_python():
    """One seed, one split: whether records come from a file or from Python."""
    federation = federation_of_records(pool(owner=(np.arange(20) >= 12).astype(np.int64)), seed=5)
    given = Federation.from_clients({"a": (X[:12], Y[:12]), "b": (X[12:], Y[12:])}, classes=2, seed=5)
    for one, other in zip(federation.clients, given.clients, strict=True):
        assert torch.equal(one.train.index, other.train.index)


def test_marked_rows_are_the_test_part():
    marks = np.arange(20) < 6
    federation = federation_of_records(pool(test=marks))
    assert sorted(i for c in federation.clients for i in c.test.index.tolist()) == list(range(6))
    with pytest.raises(DataError, match=r"t.csv, holder 'b': all its records are for the test"):
        federation_of_records(pool(test=np.arange(20) % 4 == 3))


def test_a_table_without_holders_is_dealt_out_and_a_fraction_takes_part():
    federation = federation_of_records(pool(holders=None), clients=4, how="iid", fraction=0.5)
    assert [len(c.train) + len(c.test) for c in federation.clients] == [3, 3, 2, 2]
    with pytest.raises(SettingError, match="fraction = 2"):
        federation_of_records(pool(), fraction=2)


def test_meanings_of_outputs():
    outputs = torch.tensor([[0.1, 0.9], [2.0, -1.0]])
    assert meaning(facts(), "holders.csv").of(outputs) == ["yes", "no"]
    assert meaning(Facts(), "mnist").classes == tuple("0123456789")
    assert meaning(Facts(), "fashion-mnist").of(torch.eye(10)[[9, 0]]) == ["ankle boot", "t-shirt/top"]
    assert meaning(Facts(), "cifar10").of(torch.eye(10)[[3]]) == ["cat"]
    scale = meaning(Facts(label="y", target=(100.0, 300.0)), "t.csv")
    assert scale.of(torch.tensor([[-1.0], [0.5], [1.0]])) == [100.0, 250.0, 300.0]  # the inverse of the scaling
    assert Meaning().of(torch.tensor([[7.0]])) == [7.0]


def test_inputs_for_a_dataset_by_name_are_scaled_as_it_was(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([[0.0, 16.0, 4.0]]))
    assert read_inputs(Facts(), "digits", tmp_path / "x.npz").tolist() == [[-1.0, 1.0, -0.5]]  # digits go to 16
    (tmp_path / "images").mkdir()
    Image.new("L", (3, 2), 255).save(tmp_path / "images" / "1.png")
    assert read_inputs(Facts(), "mnist", tmp_path / "images").unique().tolist() == [1.0]


def test_inputs_of_a_folder_of_tables_are_refused(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("age,sex,stay\n20,f,1.5\n")
    with pytest.raises(DataError, match="a folder of several files; give one of them"):
        read_inputs(facts(holder=None), "t.csv", tmp_path)


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path, monkeypatch):
    (tmp_path / "here" / "files").mkdir(parents=True)
    (tmp_path / "here" / "t.csv").write_text(CSV)
    for source, placed in ("t.csv", "here/t.csv"), ("files", "here/files"), ("../x.csv", "x.csv"), ("digits", None):
        (tmp_path / "here" / "run.toml").write_text(f'[data]\nsource = "{source}"\n')
        config = configs.load(str(tmp_path / "here" / "run.toml"))
        assert config.data.source == (str(tmp_path / placed) if placed else "digits")
    monkeypatch.chdir(tmp_path)
    assert configs.load("digits", ["data.source=here/t.csv"]).data.source == str(tmp_path / "here" / "t.csv")
    assert configs.load("digits", ["data.source=mnist"]).data.source == "mnist"


def test_a_config_comes_back_from_toml_as_it_was():
    import tomllib

    import tomli_w

    columns = {"age": {"range": [0, 110], "missing": 40}, "sex": ["f", "m"], "income": "private"}
    data = Data(source="/t.csv", holder="site", label="y", classes=("a", "b"), columns=columns, ignore=("id",))
    config = Config(data=data, model=Model(name="linear"), rounds=2)
    again = configs.from_dict(tomllib.loads(tomli_w.dumps(config.to_dict())))
    assert again.data == data
    assert again.fingerprint() == config.fingerprint()


@pytest.fixture
def table(tmp_path):
    """A line with noise: y = 100 + 3 v, v in [0, 20]."""
    rng = np.random.default_rng(0)
    rows = [f"{'ab'[i % 2]},{v:.3f},{100 + 3 * v + rng.normal():.3f}" for i, v in enumerate(rng.uniform(0, 20, 400))]
    (tmp_path / "line.csv").write_text("who,v,y\n" + "\n".join(rows) + "\n")
    return Data(
        source=str(tmp_path / "line.csv"), holder="who", label="y", target=(90.0, 170.0), columns={"v": [0, 20]}
    )


def test_regression_finds_the_line_in_its_own_units(table, tmp_path):
    from fedfdp.algorithms import FedAvg

    method = FedAvg(lr=0.3, local_epochs=2)
    result = launch(Config(rounds=15, data=table, model=Model("linear"), algorithm=method))
    (tmp_path / "new.csv").write_text("v\n0\n20\n")
    with torch.no_grad():
        outputs = result.model(read_inputs(table, table.source, tmp_path / "new.csv"))
    assert meaning(table, table.source).of(outputs) == pytest.approx([100.0, 160.0], abs=1.0)


LOSSES = """
import torch

def absolute(output, y):
    return (output[:, 0] - y).abs()

def mean(output, y):
    return (output[:, 0] - y).abs().mean()

def broken(output, y):
    return output @ y

number = 3
"""


@pytest.fixture
def losses(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(LOSSES)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_loss_by_import_path_is_what_is_trained_and_measured(table, losses):
    from fedfdp.algorithms import FedAvg

    config = Config(rounds=1, loss="my_losses:absolute", data=table, model=Model("linear"), algorithm=FedAvg(lr=1e-9))
    result = launch(config)
    federation = federation_of(config)
    gaps = []
    for client in federation.clients:
        x, y = client.test.take()
        with torch.no_grad():
            gaps.append((result.model(x)[:, 0] - y).abs())
    assert result.summary["loss"] == pytest.approx(float(torch.cat(gaps).mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("my_losses:absent", r"loss = 'my_losses:absent': cannot be imported"),
        ("no_such_module:f", r"cannot be imported"),
        ("my_losses:number", r"not a function; give package.module:function"),
        ("absolute", r"not a function"),
    ],
)
def test_losses_that_are_none(losses, path, said):
    with pytest.raises(SettingError, match=said):
        loss_at(path)


def test_a_loss_must_be_one_number_a_record(losses, two_clients):
    with pytest.raises(SettingError, match=r"loss = 'mean': gives shape \(\) for 2 records.*reduction='none'"):
        train(torch.nn.Linear(2, 1), two_clients, rounds=1, loss=loss_at("my_losses:mean"))
    with pytest.raises(SettingError, match=r"loss = 'broken': fails on two made-up records"):
        train(torch.nn.Linear(2, 1), two_clients, rounds=1, loss=loss_at("my_losses:broken"))
