"""Whether joining pays: worked out for made-up runs, and done for a small one."""

import json

import pytest

import fedfdp
from fedfdp.core.errors import RunError
from fedfdp.models import build
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.joining import Holder, Joining, _holder, alone_config, joining

TINY = ["data.clients=3", "data.fraction=0.3", "model.name=linear", "rounds=4", "threads=1", "privacy.epsilon=4"]


def test_a_difference_is_clear_beyond_two_standard_errors():
    # 100 records, 0.90 against 0.80: √(0.09/100 + 0.16/100) = 0.05, so 0.10 is just not more than two of it
    assert _holder("a", 0.90, 0.80, 100, higher=True).clear is False
    assert _holder("a", 0.91, 0.80, 100, higher=True).clear is True
    assert _holder("a", 0.80, 0.91, 100, higher=True).worse_off is True
    assert _holder("a", 0.7, 0.9, None, higher=False).worse_off is False  # a lower loss is better
    assert _holder("a", None, 0.9, None, higher=True).advice == "not known: it has no test records"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0.95, 0.7), (0.96, 0.8)], "joining pays: 2 of 2 holders clearly gain, and none clearly loses"),
        ([(0.95, 0.7), (0.60, 0.9)], "1 of 2 holders clearly gain by joining; b should stay out"),
        ([(0.80, 0.8), (0.81, 0.8)], "no holder clearly gains or loses"),
    ],
)
def test_the_recommendation(pairs, said):
    holders = tuple(_holder(name, *pair, 200, higher=True) for name, pair in zip("ab", pairs, strict=True))
    assert Joining("accuracy", 3.0, holders).recommendation.startswith(said)


def test_those_worse_off_are_named():
    found = Joining("accuracy", None, (Holder("a", 0.5, 0.6, 9, True, False), Holder("b", 0.7, 0.6, 9, False, False)))
    assert found.worse_off == ["a"]
    assert found.to_dict()["holders"][0]["advice"] == "no clear difference: too few test records to tell"


def test_alone_has_the_same_budget_records_and_rounds():
    config = configs.load("digits", [*TINY, "participation.fraction=0.67", "privacy.accountant=rdp"]).resolved()
    alone = alone_config(config, ["algorithm.lr=3"])
    assert (alone.algorithm.name, alone.algorithm.lr) == ("local", 3.0)
    assert (alone.privacy.epsilon, alone.rounds, alone.data) == (4.0, 4, config.data)
    assert alone.privacy.sigma < config.privacy.sigma  # no loss is released, and ε is spent
    assert alone.participation.fraction == 1.0


def test_a_run_is_compared_and_the_comparison_is_kept(tmp_path):
    launch(configs.load("digits", TINY), out=tmp_path / "run")
    found = joining(tmp_path / "run")
    alone = RunFolder.find(tmp_path / "run" / "alone")
    assert [holder.joined for holder in found.holders] == RunFolder(tmp_path / "run").metrics()[-1]["clients"][
        "accuracy"
    ]
    assert [holder.alone for holder in found.holders] == alone.metrics()[-1]["clients"]["accuracy"]
    assert alone.summary()["epsilon"] == pytest.approx(4.0, rel=0.01)
    assert RunFolder(tmp_path / "run").joining() == json.loads(json.dumps(found.to_dict()))
    stamp = (alone.path / "summary.json").stat().st_mtime_ns
    joining(tmp_path / "run")
    assert (alone.path / "summary.json").stat().st_mtime_ns == stamp  # not trained again


def test_a_run_from_python_is_told_what_to_do(digits, tmp_path):
    model = build("linear", input_shape=(1, 8, 8), outputs=10, seed=0)
    fedfdp.train(model, digits, rounds=1, out=tmp_path / "r")
    with pytest.raises(RunError, match=r"started from Python: train LocalOnly\(\)"):
        joining(tmp_path / "r")
