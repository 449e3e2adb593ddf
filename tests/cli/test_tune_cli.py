import json
import subprocess
import sys

import pytest

SMALL = ["data.clients=3", "data.fraction=0.2", "data.beta=1.0", "model.name=linear", "rounds=3", "privacy.clip=1.0"]
SETTINGS = [part for item in SMALL for part in ("--set", item)]
GRID = ["--grid", "algorithm.lr=0.001,0.5", "--grid", "algorithm.server_lam=0,1"]


@pytest.fixture
def tune(fedfdp, tmp_path):
    return lambda *more: fedfdp("tune", *more, *SETTINGS, *GRID, "--jobs", 1, "--out", tmp_path / "tuned")


def test_json_and_picture(tune, tmp_path):
    code, out, _ = tune("digits", "--json")
    answer = json.loads(out)
    assert code == 0
    assert len(answer["tried"]) == 4
    assert sorted(entry["rounds"] for entry in answer["tried"]) == [
        3,
        3,
        3,
        3,
    ]  # so short that none is dropped before its end
    assert answer["chosen"] in answer["front"]
    assert answer["chosen"]["settings"][0] == "algorithm.lr=0.5"
    assert answer["command"].startswith("fedfdp run digits --set data.clients=3 ")
    assert answer["command"].endswith(" ".join(f"--set {item}" for item in answer["chosen"]["settings"]))
    assert "costs privacy" in answer["privacy"]
    assert (tmp_path / "tuned" / "front.png").read_bytes().startswith(b"\x89PNG")


def test_words_for_private_and_public_data(tune, tmp_path):
    out = tune("digits")[1]
    assert "Pareto front" in out
    assert "Tuning on private data costs privacy: 4 settings are tried on digits" in out
    # The private data set of this preset is mnist; it is neither read nor needed.
    code, out, error = tune("default", "--public", "digits")
    assert code == 0
    assert "taken to be public: that costs no privacy" in out
    assert "costs privacy:" not in out + error
    assert "fedfdp run default --set" in out
    assert "data.source" not in out


def test_mistakes_are_one_line(fedfdp):
    for arguments in (["--grid", "algorithm.lr"], ["--png", "front.pdf"], ["--grid", "algorithm.lrr=1"]):
        code, out, error = fedfdp("tune", "digits", *arguments)
        assert (code, out, error.count("\n")) == (2, "", 1)


def test_module_imports_nothing_heavy():
    code = "import sys, fedfdp.cli.tune; print([m for m in ('torch', 'matplotlib', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
