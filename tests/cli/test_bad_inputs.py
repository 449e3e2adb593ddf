"""What a new user gets wrong: files, settings, commands, Python arguments. Each is one line that names it, exit code 2.

Nothing is written meanwhile: the folder holds the same files afterwards.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import fedfdp
from fedfdp.core.errors import FedFDPError

TABLE = "site,age,sex,seen,back\n" + "".join(
    f"{('north', 'south')[i % 2]},{20 + i},{'fm'[i // 2 % 2]},2020-01-{i % 28 + 1:02},{('no', 'yes')[i // 3 % 2]}\n"
    for i in range(60)
)
DATA = """
[data]
source = "{source}"
holder = "site"
label = "back"
classes = ["no", "yes"]
columns = {{ age = [0, 110], sex = ["f", "m"], seen = ["2020-01-01", "2020-12-31"] }}
"""
RUN = """rounds = 2
model = { name = "linear" }
privacy = { sigma = 1.0, q = 0.5, clip = 1.0 }
algorithm = { lr = 0.5 }
"""


def spoilt(old, new):
    assert old in TABLE
    return TABLE.replace(old, new, 1).encode()


FILES = {  # each is the table of a config NAME.toml
    "empty.csv": (b"", "empty (0 bytes)"),
    "header.csv": (TABLE.splitlines()[0].encode(), "an empty holder: no records"),
    "latin.csv": (spoilt("north", "n\u00f6rth").decode().encode("latin-1"), "row 1: not UTF-8; save it as UTF-8"),
    "utf16.csv": (TABLE.encode("utf-16"), "not UTF-8 text"),
    "sheet.xlsx": (b"PK\3\4", "files of kind '.xlsx' are not read; give .csv"),
    "ragged.csv": (spoilt("20,f", "20,f,f"), "row 1: 6 cells, the header has 5"),
    "twice.csv": (spoilt("sex", "age"), "column 'age': there are two of this name"),
    "unnamed.csv": (spoilt("site", ""), "column 1: has no name in the header"),
    "damaged.parquet": (b"PAR1 and nothing else", "not a whole Parquet file"),
    "damaged.csv.gz": (gzip.compress(TABLE.encode())[:-9], "not a whole gzip file"),
    "noholder.csv": (spoilt("site", "town"), "no column 'site' as data.holder says"),
    "nolabel.csv": (spoilt("back", "return"), "no column 'back' as data.label says"),
    "nocolumn.csv": (spoilt("age", "years"), "no column 'age' as data.columns says"),
    "class.csv": (spoilt(",no\n", ",never\n"), "row 1, column 'back': label 'never' is no class; known: no, yes"),
    "category.csv": (spoilt(",f,", ",x,"), "row 1, column 'sex': no such category as 'x'; known: f, m"),
    "text.csv": (spoilt("20,f", "old,f"), "row 1, column 'age': 'old' is not a number"),
    "missing.csv": (spoilt("20,f", ",f"), "row 1, column 'age': is missing; set missing = a public value"),
    "infinite.csv": (spoilt("20,f", "inf,f"), "row 1, column 'age': is infinite"),
    "nolabels.csv": (spoilt(",no\n", ",\n"), "row 1, column 'back': is empty; fill it in or remove the row"),
    "nobody.csv": (spoilt("north", "NA"), "row 1, column 'site': is 'NA', which counts as missing (data.missing)"),
    "date.csv": (spoilt("2020-01-01", "2020-13-01"), "row 1, column 'seen': '2020-13-01' is no date or time"),
    "decimal.csv": (spoilt("20,f", '"20,5",f'), "row 1, column 'age': '20,5' is not a number; is the mark"),
    "thousands.csv": (spoilt("20,f", "1|234,f").replace(b",", b";").replace(b"|", b","), "are these thousands?"),
}
SETTINGS = {
    "privacy.epsilom=3": "privacy.epsilom = 3: no such setting; did you mean 'epsilon'?",
    "dta.source=x": "dta = {'source': 'x'}: no such setting; did you mean 'data'?",
    "rounds=many": "rounds = 'many': a whole number",
    "rounds=0": "rounds = 0: 1 or more",
    "rounds=1.5": "rounds = 1.5: a whole number",
    "rounds": "--set = 'rounds': expected section.setting=value",
    "privacy=3": "privacy = 3: a section of settings",
    "data=x": "data = 'x': a section of settings",
    "privacy.epsilon=-1": "privacy.epsilon = -1.0: ",
    "privacy.epsilon=three": "privacy.epsilon = 'three': a number",
    "privacy.epsilon=0.0001": "privacy.epsilon = 0.0001: ",
    "privacy.delta=2": "privacy.delta = 2.0: ",
    "privacy.q=0": "privacy.q = 0.0: ",
    "privacy.q=1.5": "privacy.q = 1.5: ",
    "privacy.sigma=-1": "privacy.sigma = -1.0: ",
    "privacy.sigma=nan": "privacy.sigma = nan: ",
    "privacy.clip=0": "privacy.clip = 0.0: ",
    "privacy.accountant=mine": "privacy.accountant = 'mine': ",
    "privacy.budgets.west=1": "privacy.budgets.west = 1.0: no such client; ",
    "algorithm.lr=-1": "algorithm.lr = -1.0: ",
    "algorithm.lr=nan": "algorithm.lr = nan: ",
    "algorithm.name=fedfpd": "algorithm.name = 'fedfpd': did you mean 'fedfdp'?",
    "model.name=liner": "model.name = 'liner': did you mean 'linear'?",
    "model.name=nowhere:Net": "model.name = 'nowhere:Net': cannot be imported: No module named 'nowhere'",
    "model.name=small-cnn": "model.name = 'small-cnn': needs images of at least",
    "model.arguments.depth=3": "model.arguments = {'depth': 3}: ",
    "model.trainable=['head']": "model.trainable = 'head': matches no parameter",
    "engine=cloud": "engine = 'cloud': ",
    "device=gpu7": "device = 'gpu7': there is no such device here",
    "randomness=maybe": "randomness = 'maybe': ",
    "metric=f1": "metric = 'f1': ",
    "loss=hinge": "loss = 'hinge': ",
    "seed=-1": "seed = -1: from 0",
    "threads=0": "threads = 0: from 1 to 1024",
    "eval_every=0": "eval_every = 0: 1 or more",
    "data.test_fraction=1": "data.test_fraction = 1.0: strictly between 0 and 1",
    "data.fraction=0": "data.fraction = 0.0: in (0, 1]",
    "data.partition=random": "data.partition = 'random': ",
    "data.unit=person": "no column 'person' as data.unit says",
    "data.test=part": "no column 'part' as data.test says",
    "data.classes=['no']": "data.classes = ('no',): two or more different names",
    "data.target=[0, 1]": "data.target = (0.0, 1.0): given beside data.classes",
    "data.columns.age=[5]": "data.columns.age",
    "data.columns.age=[9, 1]": "data.columns.age.range = [9, 1]: [low, high] with low below high",
    "data.columns.age=seven": "data.columns.age = 'seven': a range [low, high]",
    "data.columns.back=['no', 'yes']": "data.columns.back = ['no', 'yes']: it is data.label",
    "data.columns=[1]": "data.columns = [1]: settings by name",
    "data.missing=NA": "data.missing = 'NA': a list",
    "data.decimal=;": "data.decimal = ';': ",
    "data.range=[0, 1]": "data.range = (0.0, 1.0): ",
    "data.folder=absent": "absent",
    "participation.fraction=2": "participation.fraction = 2.0: ",
    "server.optimizer=adamm": "server.optimizer = 'adamm': ",
    "server.average=1": "server.average = 1.0: ",
    "server.robust=mean": "server.robust = 'mean': ",
    "server.trim=0.2": "server.trim = 0.2: ",
}
COMMANDS = {
    "run absent.toml": "config = 'absent.toml': cannot be read: No such file or directory",
    "run folder.toml": "config = 'folder.toml': cannot be read: Is a directory",
    "run syntax.toml": "config = 'syntax.toml': not valid TOML",
    "run binary.toml": "config = 'binary.toml': not valid TOML",
    "run based.toml": "base of ",
    "run digit": "preset = 'digit': did you mean 'digits'?",
    "run nofile.toml": "nofile.csv: no such file; check data.source",
    "run nofolder.toml": "nofolder: holds nothing that can be read",
    "run run.toml --out done": "done holds a run already",
    "run run.toml --out run.toml": "run.toml is not an empty folder",
    "run run.toml --log wandb": "--log",
    "run --resume nowhere": "nowhere is not a run folder",
    "run --resume done": "done is finished; there is nothing to resume",
    "run run.toml --resume done": "takes the run as it was started",
    "run run.toml --rounds 3": "No such option: --rounds; a run's settings are given as --set rounds=value",
    "trian run.toml": "No such command 'trian'; ",
    "predict done": "Missing argument 'FILE'",
    "predict nowhere t.csv": "nowhere is not a run folder",
    "predict done absent.csv": "absent.csv: no such file; check the path",
    "predict done extra.csv": "column 'weight': the model was trained without it; remove it from the file, or leave it",
    "predict done other.csv": "no such category as 'x'; known: f, m; correct it or remove the row: this model knows no",
    "predict done gap.csv": "row 1, column 'age': is missing; fill it in or remove the row",
    "predict done narrow.csv": "no column 'age', which the model takes",
    "predict done t.csv --ignore age": "--ignore = 'age': the model was trained on this column",
    "predict done t.csv --out absent/p.csv": "--out = 'absent/p.csv': cannot be written",
    "export done --out model.h5": "--out = 'model.h5': must end in one of",
    "export nowhere": "nowhere is not a run folder",
    "show nowhere": "nowhere holds no run",
    "report nowhere": "nowhere holds no run",
    "report done --out nofolder": "nofolder",
    "runs show nowhere": "nowhere is not a run folder",
    "runs prune done": "prune = None: nothing chosen to delete",
    "runs export done --format xls": "xls",
    "data get mnst": "did you mean 'mnist'?",
    "data show digits --clients many": "'many' is not a valid integer",
    "data show digits --clients 0": "clients = 0",
    "data show digits --partition column": "column",
    "data show digits --beta 0": "0",
    "data check absent.csv": "absent.csv: no such file",
    "data check sheet.xlsx": "files of kind '.xlsx' are not read",
    "init absent.csv --holder a --label b --out new.toml": "absent.csv: no such file; check the path",
    "init t.csv --holder site --out new.toml": "--label = None: which column of t.csv?",
    "init t.csv --holder site --label age --out new.toml": "--label = 'age': has more than 20 different values",
    "plan --epsilon -3 --sigma 2 --q 0.1": "epsilon",
    "models check nowhere:Net --input-shape 1,8,8": "nowhere:Net",
    "tune absent.toml": "absent.toml",
    "reproduce table9": "table9",
    "node --config absent.toml": "absent.toml",
    "node ledger absent": "absent",
    "node ledger absent --by week": "week",
    "node backup absent.toml --out new.tar.gz": "absent.toml",
    "node restored absent.toml": "absent.toml",
    "doctor absent.toml": "absent.toml",
    "server --config absent.toml": "absent.toml",
    "audit --game chess": "chess",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every wrong file, a right one, and a run that is done."""
    place = tmp_path_factory.mktemp("bad")
    for name, (content, _) in FILES.items():
        (place / name).write_bytes(content)
        (place / f"{name}.toml").write_text(RUN + DATA.format(source=name))
    (place / "t.csv").write_text(TABLE)
    (place / "run.toml").write_text(RUN + DATA.format(source="t.csv"))
    (place / "folder.toml").mkdir()
    (place / "syntax.toml").write_text("rounds = \n")
    (place / "binary.toml").write_bytes(b"\xff\xfe\0")
    (place / "based.toml").write_text('base = "defualt"\n')
    (place / "nofile.toml").write_text(RUN + DATA.format(source="nofile.csv"))
    (place / "nofolder").mkdir()
    (place / "nofolder.toml").write_text(RUN + DATA.format(source="nofolder/"))
    rows = "age,sex,seen\n30,f,2020-02-02\n"
    (place / "extra.csv").write_text(rows.replace("age", "weight,age").replace("30", "70,30"))
    (place / "other.csv").write_text(rows.replace("f", "x"))
    (place / "gap.csv").write_text(rows.replace("30", ""))
    (place / "narrow.csv").write_text(rows.replace("age,", "").replace("30,", ""))
    with pytest.MonkeyPatch.context() as patch:
        assert call(place, patch, "run", "run.toml", "--out", "done") == 0
    return place


def call(place, patch, *arguments):
    from fedfdp.cli.main import main

    patch.chdir(place)
    patch.setattr(sys, "argv", ["fedfdp", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def refused(folder, monkeypatch, capsys, arguments, said):
    before = sorted(folder.rglob("*"))
    capsys.readouterr()
    code = call(folder, monkeypatch, *arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), (code, out, err)
    lines = [line for line in err.splitlines() if not line.startswith("FedFDP on ")]
    assert len(lines) == 1, err
    assert lines[0].startswith("fedfdp: ")
    assert said in lines[0]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", FILES)
def test_wrong_files(folder, monkeypatch, capsys, name):
    refused(folder, monkeypatch, capsys, ("run", f"{name}.toml"), FILES[name][1])


@pytest.mark.parametrize("setting", SETTINGS)
def test_wrong_settings(folder, monkeypatch, capsys, setting):
    refused(folder, monkeypatch, capsys, ("run", "run.toml", "--set", setting), SETTINGS[setting])


@pytest.mark.parametrize("line", COMMANDS)
def test_wrong_commands(folder, monkeypatch, capsys, line):
    refused(folder, monkeypatch, capsys, line.split(), COMMANDS[line])


X, Y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
CLIENTS = {"a": (X[:20], Y[:20]), "b": (X[20:], Y[20:])}


def clients(**changes):
    return fedfdp.Federation.from_clients({**CLIENTS, **changes}, classes=2)


def train(model=None, federation=None, **settings):
    given = {"algorithm": fedfdp.FedAvg(lr=0.5), "rounds": 1, **settings}
    return fedfdp.train(torch.nn.Linear(3, 2) if model is None else model, federation or clients(), **given)


class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x @ self.weight.reshape(7, 1)


PYTHON = {
    "model": (lambda: train("linear"), "model = 'linear': not a torch.nn.Module"),
    "model class": (lambda: train(torch.nn.Linear), "model = <class"),
    "model shape": (lambda: train(torch.nn.Linear(4, 2)), "cannot take records of shape (3,)"),
    "model outputs": (lambda: train(torch.nn.Linear(3, 5)), "gives outputs of shape (records, 5)"),
    "model breaks": (lambda: train(Broken()), "cannot take records of shape (3,)"),
    "model without weights": (lambda: train(torch.nn.Identity()), "model"),
    "model frozen": (lambda: train(torch.nn.Linear(3, 2).requires_grad_(False)), "model"),
    "federation": (lambda: train(federation={"a": (X, Y)}), "federation = <class 'dict'>: not a fedfdp.Federation"),
    "algorithm": (lambda: train(algorithm="fedfdp"), "algorithm = 'fedfdp': not a method; as fedfdp.FedFDP()"),
    "algorithm class": (lambda: train(algorithm=fedfdp.FedAvg), "a class; make one of it: FedAvg(…)"),
    "privacy": (lambda: train(privacy=3.0), "privacy = 3.0: not a fedfdp.DPSGD"),
    "rounds": (lambda: train(rounds=0), "rounds = 0"),
    "rounds fraction": (lambda: train(rounds=1.5), "rounds = 1.5"),
    "rounds open": (lambda: train(rounds=None), "rounds"),
    "seed": (lambda: train(seed="x"), "seed = 'x': not a whole number"),
    "negative seed": (lambda: train(seed=-1), "seed = -1"),
    "threads": (lambda: train(threads=0), "threads = 0"),
    "threads text": (lambda: train(threads="two"), "threads = 'two'"),
    "device": (lambda: train(device="gpu"), "device = 'gpu'"),
    "device number": (lambda: train(device=3), "device = 3"),
    "out": (lambda: train(out=3), "out = 3: not the path of a folder"),
    "resume nothing": (lambda: train(resume=True), "resume"),
    "engine": (lambda: train(engine="cloud"), "engine = 'cloud'"),
    "loss": (lambda: train(loss="hinge"), "loss = 'hinge'"),
    "loss mean": (lambda: train(loss=torch.nn.functional.cross_entropy), "loss"),
    "metric": (lambda: train(metric="f1"), "metric = 'f1'"),
    "eval_every": (lambda: train(eval_every=0), "eval_every = 0"),
    "randomness": (lambda: train(randomness="none"), "randomness = 'none'"),
    "server": (lambda: train(server="adam"), "server = 'adam': not a fedfdp.ServerOptimizer"),
    "optimizer": (lambda: fedfdp.ServerOptimizer(optimizer="adamm"), "optimizer = 'adamm'"),
    "participation": (lambda: fedfdp.Participation(fraction=0), "fraction = 0"),
    "lr": (lambda: fedfdp.FedFDP(lr=-1.0), "lr = -1.0"),
    "lr text": (lambda: fedfdp.FedFDP(lr="high"), "lr = 'high'"),
    "epsilon": (lambda: fedfdp.DPSGD(epsilon=-1.0), "epsilon = -1.0"),
    "epsilon text": (lambda: fedfdp.DPSGD(epsilon="three"), "epsilon = 'three'"),
    "q": (lambda: fedfdp.DPSGD(epsilon=1.0, q=2.0), "q = 2.0"),
    "no clients": (lambda: fedfdp.Federation.from_clients({}), "client"),
    "clients as a list": (lambda: fedfdp.Federation.from_clients([(X, Y)]), "client"),
    "empty client": (lambda: clients(b=(X[:0], Y[:0])), "'b'"),
    "lengths": (lambda: clients(b=(X[:5], Y[:4])), "'b'"),
    "shapes": (lambda: clients(b=(X[:5, :2], Y[:5])), "'b'"),
    "NaN": (lambda: clients(b=(X[:5] * float("nan"), Y[:5])), "'b'"),
    "labels": (lambda: clients(b=(X[:5], Y[:5] + 1)), "'b'"),
    "text inputs": (lambda: clients(b=(np.array([["x"]] * 5), Y[:5])), "'b'"),
    "three parts": (lambda: clients(b=(X, Y, X)), "'b'"),
    "partition": (
        lambda: fedfdp.Federation.partition(fedfdp.data.load("digits"), clients=3, how="random"),
        "'random'",
    ),
    "dataset": (lambda: fedfdp.data.load("mnst"), "did you mean 'mnist'?"),
    "load": (lambda: fedfdp.load("nowhere"), "nowhere is not a run folder"),
    "load file": (lambda: fedfdp.load(Path(__file__)), "is not a run folder"),
}


@pytest.mark.parametrize("case", PYTHON)
def test_wrong_arguments(case):
    wrong, said = PYTHON[case]
    with pytest.raises(FedFDPError) as error:
        wrong()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_there_are_more_than_sixty():
    assert len(FILES) + len(SETTINGS) + len(COMMANDS) + len(PYTHON) >= 150


def test_nested_columns(tmp_path, monkeypatch, capsys):
    pq.write_table(pa.table({"a": [[1]], "y": [0]}), tmp_path / "t.parquet")
    refused(tmp_path, monkeypatch, capsys, ("data", "check", "t.parquet"), "column 'a': holds list")
