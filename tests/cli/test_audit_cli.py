import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedfdp import audit as audits
from fedfdp.audit import Fault, ReleaseGame
from fedfdp.cli.audit import audit
from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting import Event, epsilon

FEW = ("--trials", "1000", "--q", "1", "--seed", "3")


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(audit)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


def test_json_is_all_of_stdout(run):
    result = run(*FEW, "--json", "--sigma", 1.5, "--delta", 1e-4)
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["epsilon_claimed"] == epsilon([Event(1.0, (1.5, 5.0))], 1e-4)
    assert 0 < answer["epsilon_lower"] < answer["epsilon_claimed"]
    assert (answer["confidence"], answer["delta"], answer["trials"]) == (0.999, 1e-4, 1000)
    assert answer["exceeded"] is False
    assert answer["true_positives"][1] == answer["false_positives"][1] == 750
    assert result.stderr.splitlines()[-1] == "1000/1000 trials"


def test_words(run):
    out = run(*FEW).stdout
    lines = {line[:32].strip(): line[33:] for line in out.splitlines()}
    assert lines["ε claimed by the accountant"] == "4.4778 at δ = 1e-05"
    assert lines["settings"] == "σ = 1, σ_l = 5, q = 1, C = 1"
    assert "Verdict: the claim stands" in out


def test_an_exceeded_claim_is_said_and_exits_with_one(run, monkeypatch):
    monkeypatch.setattr(ReleaseGame, "claimed", property(lambda self: 0.2))
    result = run(*FEW)
    assert result.exit_code == 1
    assert "Verdict: the claim is exceeded" in result.stdout
    assert json.loads(run(*FEW, "--json").stdout)["exceeded"] is True


def test_training(run, tmp_path):
    arguments = ("--game", "training", "--canaries", 200, "--rounds", 2, "--seed", 0, "--png", tmp_path / "t.png")
    result = run(*arguments, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["epsilon_claimed"] == pytest.approx(epsilon([Event(0.5, (2.0, 5.0), count=2)], 1e-5))
    assert 0 <= answer["epsilon_lower"] <= answer["epsilon_ceiling"]
    assert answer["correct"] <= answer["guesses"] <= 200
    assert (tmp_path / "t.png").stat().st_size > 10_000
    assert f"{answer['correct']} of {answer['guesses']} right" in run(*arguments).stdout


def test_plot_shows_both_worlds(run, tmp_path):
    from matplotlib.image import imread

    assert f"plot: {tmp_path / 'p.png'}" in run(*FEW, "--png", tmp_path / "p.png").stdout.replace("\n", "")
    picture = imread(tmp_path / "p.png")[..., :3]
    for colour in ([255, 127, 14], [31, 119, 180]):
        assert (np.abs(picture - np.array(colour) / 255).max(axis=2) < 0.02).sum() > 500


def test_self_test(run, monkeypatch):
    known = {fault.name: fault for fault in audits.FAULTS}
    monkeypatch.setattr(audits, "FAULTS", (known["a fixed record in every batch"],))
    result = run("--self-test", "--trials", 1000, "--seed", 1, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [row["exceeded"] for row in answer["faults"]] == [False, True]
    assert answer["faults"][1]["epsilon_lower_gaussian"] is None  # no noise at all explains it
    monkeypatch.setattr(audits, "FAULTS", (Fault("nothing wrong"),))
    missed = run("--self-test", "--trials", 1000, "--seed", 1)
    assert missed.exit_code == 1
    assert "Not found: nothing wrong" in missed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--game", "relase"), "game = 'relase': did you mean 'release'?"),
        (("--game", "training", "--trials", 5000), "trials = 5000: not a setting of the training audit"),
        (("--rounds", 5), "rounds = 5: not a setting of the release audit"),
        (("--self-test", "--sigma", 2), "sigma = 2.0: not a setting of the self-test audit"),
        (("--self-test", "--png", "x.png"), "png = 'x.png': the self-test draws nothing"),
        (("--trials", 10), "trials = 10: at least 1000"),
        (("--confidence", 1), "confidence = 1.0: at least 0.5 and below 1"),
        (("--sigma", 0), "privacy.sigma = 0.0"),
        (("--q", 2), "privacy.q = 2.0"),
        (("--seed", -1), "seed = -1: 0 or more"),
        (("--png", "x.pdf"), "png = 'x.pdf': must be a file name that ends in .png"),
        (("--png", "nowhere/x.png"), "png = 'nowhere/x.png': must be in a folder that exists"),
    ],
)
def test_what_cannot_be_is_one_line(run, arguments, message):
    error = run(*arguments).exception
    assert isinstance(error, SettingError)
    assert str(error).startswith(message)


def test_module_imports_nothing_heavy():
    code = "import sys, fedfdp.cli.audit; print([m for m in ('torch', 'matplotlib', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
