import json
import math
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedfdp.cli.lambda_star import lambda_star
from fedfdp.core.errors import SettingError

# n = 4, C/G = 10: the derived bound is (c³ + 3c² + 4c + 8)/(2c − 1) in c = 1 + λ, up to a factor and a summand
GIVEN = {
    "--L": 2, "--mu": 1, "--G": 1, "--Gamma": 0, "--q0": 1, "--q1": 1, "--sigma": 2, "--clip": 10, "--dim": 1,
    "--b-hat": 10, "--distance": 1, "--rounds": 10,
}  # fmt: skip


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(lambda_star)

    def call(*extra, **changes):
        given = GIVEN | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
        arguments = [str(part) for pair in given.items() for part in pair]
        return CliRunner().invoke(app, [*arguments, *map(str, extra)])

    return call


def test_json_is_all_of_stdout(run):
    result = run("--json")
    answer = json.loads(result.stdout)
    c = max(z.real for z in np.roots([4, 3, -6, -20]) if z.imag == 0)
    assert result.exit_code == 0
    assert answer["lambda_star"] == pytest.approx(c - 1, rel=1e-12)
    assert answer["regime"] == "interior"
    assert answer["domain"] == [0.0, None]
    # γ + 1 = 2·max(L/μ, C/G) = 20
    assert answer["bound"] == pytest.approx(
        2 / (2 * 29) * (4 * (c**3 + 3 * c**2 + 4 * c + 8) / (2 * c - 1) + 20), rel=1e-12
    )
    # a6 = −(3 − 12)²/(12·4), a7 = (108·4·(11 − 26) − 36·12·15 + 2·15³)/(216·8)
    assert answer["coefficients"]["printed"] == pytest.approx(
        {"scale": 0.1, "a1": 1, "a2": 6, "a3": 11, "a4": 13, "a5": 2, "a6": -81 / 48, "a7": -6210 / 1728}, rel=1e-14
    )
    derived = answer["coefficients"]["derived"]
    assert [derived[name] for name in ("scale", "a1", "a2", "a3", "a4", "a5")] == pytest.approx(
        [4 / 29, 1, 6, 13 + 2 * 5, 4 + 12 + 5, 2], rel=1e-14
    )


def test_negative_q0(run):
    answer = json.loads(run("--json", q0=-0.4).stdout)
    assert (answer["lambda_star"], answer["regime"], answer["domain"]) == (0.0, "zero", [0.0, 1.25])


def test_void_has_no_lambda(run, tmp_path):
    answer = json.loads(run("--json", "--png", tmp_path / "p.png", clip=0.01).stdout)
    assert (answer["lambda_star"], answer["printed_lambda_star"], answer["bound"], answer["png"]) == (None,) * 4
    assert (answer["regime"], answer["domain"]) == ("void", [0.0, 0.0])
    words = run("--png", tmp_path / "p.png", clip=0.01).stdout
    assert "λ* = none" in words
    assert "domain: empty" in words
    assert "nothing to draw" in words
    assert not (tmp_path / "p.png").exists()


def test_words(run):
    out = run(q0=-0.4).stdout
    assert "λ* = 0\n" in out
    assert "regime: zero. some records are easier than the average (Q_0 < 0)" in out
    assert "domain: 0 ≤ λ < 1.25\n" in out
    rows = {
        line.split("│")[1].strip(): [x.strip() for x in line.split("│")[2:5]]
        for line in out.splitlines()
        if "│" in line
    }
    assert rows["a4"] == ["13", "13", f"{4 + 12 + 1:g}"]  # γ + 1 = 4 here, so the distance counts once
    assert rows["a5"] == ["-0.8", "-0.8", "-0.8"]
    assert "domain: 0 ≤ λ < ∞\n" in run().stdout


def test_no_cubic_has_no_a6(run):
    assert json.loads(run("--json", q0=0).stdout)["coefficients"]["derived"]["a6"] is None
    assert "none" in run(q0=0).stdout


@pytest.mark.parametrize("changes", [{}, {"q0": -0.4}, {"clip": 1.1}, {"q0": 0, "q1": 0}])
def test_plot(run, tmp_path, changes):
    from matplotlib.image import imread

    result = run("--png", tmp_path / "p.png", **changes)
    assert result.exit_code == 0, result.output
    assert f"plot: {tmp_path / 'p.png'}" in result.stdout.replace("\n", "")
    picture = imread(tmp_path / "p.png")[..., :3]
    blue = np.array([31, 119, 180]) / 255
    assert (np.abs(picture - blue).max(axis=2) < 0.02).sum() > 500  # the curve is there


def test_plot_file_must_be_a_png_in_a_folder_that_exists(run, tmp_path):
    for path in (tmp_path / "p.pdf", tmp_path / "none" / "p.png"):
        error = run("--png", path).exception
        assert isinstance(error, SettingError)
        assert str(error).startswith("png = ")


@pytest.mark.parametrize(
    ("changes", "message"), [({"mu": 3}, "mu = 3.0"), ({"G": 0}, "G = 0.0"), ({"dim": 0}, "dim = 0")]
)
def test_wrong_constants_are_setting_errors(run, changes, message):
    error = run(**changes).exception
    assert isinstance(error, SettingError)
    assert str(error).startswith(message)


def test_json_without_infinities_at_the_extremes(run):
    answer = json.loads(run("--json", G=1e-30, L=1e30, mu=1e-30, clip=1e30, sigma=1e30, b_hat=1e-30).stdout)
    assert math.isfinite(answer["lambda_star"])


def test_module_imports_nothing_heavy():
    code = (
        "import sys, fedfdp.cli.lambda_star; print([m for m in ('torch', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
