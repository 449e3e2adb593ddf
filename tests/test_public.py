"""What `import fedfdp` gives: its names, its version, and one line for whatever `train` cannot take."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import TensorDataset

import fedfdp
from fedfdp.core.errors import SettingError

ROOT = Path(__file__).parents[1]


def test_one_version():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert fedfdp.__version__ == importlib.metadata.version("fedfdp") == written


def test_dir_lists_what_is_public_and_all_of_it_is_there():
    assert dir(fedfdp) == sorted(fedfdp.__all__)
    assert set(fedfdp._HOME) | {"__version__"} == set(fedfdp.__all__)
    for name in fedfdp.__all__:
        assert getattr(fedfdp, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Absent'"):
        fedfdp.Absent  # noqa: B018


def test_neither_dir_nor_the_version_loads_torch():
    told = "import fedfdp, sys; dir(fedfdp); fedfdp.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0


def test_a_callback_is_given_the_exported_types(two_clients):
    seen = []
    fedfdp.train(torch.nn.Linear(2, 1), two_clients, algorithm=fedfdp.FedAvg(), rounds=1, on_update=seen.append)
    (update,) = seen
    assert type(update) is fedfdp.Update
    assert type(update.step) is fedfdp.Step
    assert type(update.step.evaluation) is fedfdp.Evaluation
    assert type(update.step.evaluation.clients) is fedfdp.ClientResults


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("algorithm", "fedavg", "algorithm = 'fedavg': not a method; as fedfdp.FedAvg()"),
        ("algorithm", "unheard", "algorithm = 'unheard': not a method; as fedfdp.FedFDP()"),
        ("algorithm", fedfdp.FedAvg, f"algorithm = {fedfdp.FedAvg!r}: a class; make one of it: FedAvg(…)"),
        ("model", LogisticRegression(), f"model = {LogisticRegression!r}: not a torch.nn.Module"),
        ("model", torch.nn.Linear, f"model = {torch.nn.Linear!r}: a class; make one of it: Linear(…)"),
        ("model", None, "model = None: not a torch.nn.Module"),
        ("federation", [(np.zeros((3, 2)), np.zeros(3))], "federation = <class 'list'>: not a fedfdp.Federation"),
        ("federation", TensorDataset(torch.zeros(1, 2)), f"federation = {TensorDataset!r}: not a fedfdp.Federation"),
        ("privacy", 3.0, "privacy = 3.0: not a fedfdp.DPSGD; as fedfdp.DPSGD(epsilon=3.0)"),
        ("server", "adam", "server = 'adam': not a fedfdp.ServerOptimizer"),
        ("participation", 0.5, "participation = 0.5: not a fedfdp.Participation"),
        ("rounds", "5", "rounds = '5': a whole number of at least 1"),
        ("rounds", 0, "rounds = 0: a whole number of at least 1"),
        ("seed", 1.5, "seed = 1.5: not a whole number"),
        ("loss", "mse", "loss = 'mse': not a function of (outputs, targets)"),
        ("metric", 3, "metric = 3: not a name or a function of (outputs, targets)"),
        ("randomness", "secured", "randomness = 'secured': did you mean 'secure'? known: secure, seeded"),
        ("out", 7, "out = 7: not the path of a folder"),
        ("on_update", "print", "on_update = 'print': not a function of a fedfdp.Update"),
        ("eval_every", "2", "eval_every = '2': not a whole number of rounds"),
        ("config", "run.toml", "config = 'run.toml': not the settings that the folder keeps"),
    ],
)
def test_a_wrong_type_is_one_line(two_clients, name, value, said):
    given = {"model": torch.nn.Linear(2, 1), "federation": two_clients, "rounds": 1} | {name: value}
    with pytest.raises(SettingError) as error:
        fedfdp.train(given.pop("model"), given.pop("federation"), **given)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
