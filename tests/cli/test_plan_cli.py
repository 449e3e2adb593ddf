"""fedfdp plan: the JSON, the tables, the figure, and its errors as one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedfdp.cli.plan import plan, sparkline
from fedfdp.core.errors import BudgetError, SettingError

app = typer.Typer()
app.command()(plan)

SETTING = "--q 0.05 --sigma 2 --sigma-loss 5"


def run(arguments: str) -> str:
    result = CliRunner().invoke(app, arguments.split(), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_of_rounds() -> None:
    content = json.loads(run(f"--epsilon 3.52 {SETTING} --json"))
    assert content.pop("epsilon") == pytest.approx(3.519, abs=1e-3)
    assert content.pop("epsilon_replace_one") == pytest.approx(6.98, abs=0.01)
    assert content.pop("sigma_effective") == pytest.approx(1.85695, abs=1e-5)
    assert content == {
        "rounds": 763,
        "delta": 1e-5,
        "accountant": "pld",
        "q": 0.05,
        "sigma": 2.0,
        "sigma_loss": 5.0,
        "sigma_count": None,
        "local_steps": 1,
        "budget": 3.52,
        "solved_for": "rounds",
    }


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (f"--epsilon 3.52 {SETTING}", "rounds"),
        (f"--rounds 100 {SETTING}", "epsilon"),
        ("--epsilon 3.52 --rounds 100 --q 0.05 --sigma-loss 5", "sigma"),
        ("--epsilon 3.52 --rounds 100 --sigma 2 --sigma-loss 5", "q"),
        ("--epsilon 3.52 --rounds 100 --q 0.05 --sigma 2 --solve sigma-loss", "sigma_loss"),
        (f"--epsilon 3.52 --rounds 100 {SETTING} --solve delta", "delta"),
        (f"--epsilon 3.52 --rounds 100 {SETTING} --solve local-steps", "local_steps"),
    ],
)
def test_each_value_can_be_solved_for(arguments: str, name: str) -> None:
    content = json.loads(run(f"{arguments} --accountant rdp --json"))
    assert content["solved_for"] == name
    assert content["epsilon"] <= 3.52
    assert content[name] is not None


def test_tables_say_which_accountant_is_not_valid() -> None:
    text = run(f"--epsilon 3.52 {SETTING} --accountant rdp")
    assert [word for word in ("647", "683", "763", "not valid", "replace-one") if word not in text] == []


def test_compare_prices_the_papers_rounds() -> None:
    content = json.loads(run(f"--rounds 10 {SETTING} --accountant rdp --compare --json"))
    assert [cost["printed_rounds"] for cost in content["paper"]] == [6, 115, 268, 463, 708]
    assert [cost["rounds"] for cost in content["paper"]] == [17, 126, 265, 422, 584]
    assert all(cost["epsilon_model_only"] < 2.01 < cost["epsilon_rdp"] for cost in content["paper"])
    assert [opinion["valid"] for opinion in content["accountants"]] == [True, True, False]


def test_paper_accountant_is_marked() -> None:
    assert "Not a guarantee" in run(f"--epsilon 3.52 {SETTING} --accountant paper")


def test_png(tmp_path: Path) -> None:
    file = tmp_path / "new" / "plan.png"
    run(f"--rounds 10 {SETTING} --accountant rdp --json --png {file}")
    assert file.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SettingError, match="cannot be written"):
        run(f"--rounds 10 {SETTING} --accountant rdp --json --png {tmp_path}")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("--epsilon 3.52 --q 0.05", SettingError, "sigma = None: left out together with rounds"),
        (f"--epsilon 3.52 {SETTING} --accountant pdl", SettingError, "did you mean 'pld'"),
        ("--epsilon 3.52 --q 2 --sigma 1", SettingError, "q = 2.0"),
        ("--epsilon 3.52 --q 0.05 --sigma 0", SettingError, "sigma = 0.0"),
        (f"--epsilon 0.01 {SETTING}", BudgetError, "one round at sigma = 2 already cost"),
    ],
)
def test_errors_are_one_line(arguments: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        run(f"{arguments} --json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sparkline_rises_with_the_values() -> None:
    assert sparkline([1.0, 4.0, 8.0]) == "▂▅█"
    assert sparkline([0.0]) == "▁"


def test_the_command_line_loads_without_the_accountants() -> None:
    check = "import sys, fedfdp.cli.plan; sys.exit(bool({'torch', 'dp_accounting', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
