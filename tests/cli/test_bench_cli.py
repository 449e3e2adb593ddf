"""fedfdp bench: JSON alone on stdout, progress on stderr, the table, the figure, and its errors."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fedfdp.cli.bench import bench
from fedfdp.core.errors import SettingError

app = typer.Typer()
app.command()(bench)

SMALL = "--models mlp --batches 2 --peers ours --seconds 0.01 --no-memory"


def run(arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, arguments.split(), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_json_alone_on_stdout_and_progress_on_stderr() -> None:
    out, err = run(f"{SMALL} --json")
    rows = json.loads(out)
    assert [(r["what"], r["model"], r["batch"], r["clients"], r["peer"]) for r in rows] == [
        ("step", "mlp", 2, None, "plain"),
        ("step", "mlp", 2, None, "ours"),
    ]
    assert {"ratio_to_plain", "peak_mb", "seconds", "repeats"} <= set(rows[0])
    assert rows[0]["ratio_to_plain"] == 1.0
    assert rows[1]["ratio_to_plain"] > 0
    assert "mlp, batch 2: time" in err


def test_table_and_figure(tmp_path) -> None:
    out, _ = run(f"{SMALL} --png {tmp_path / 'b.png'} --markdown {tmp_path / 'b.md'}")
    assert "Time of a step" in out
    assert "torch" in out.splitlines()[-1]
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert "| model | batch | plain | ours |" in (tmp_path / "b.md").read_text()


def test_a_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    out, err = run(f"{SMALL.replace('ours', 'ours,opacus_hooks')} --json")
    assert [row["peer"] for row in json.loads(out)] == ["plain", "ours"]
    assert "opacus_hooks: skipped, opacus is not installed" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--batches a", "whole numbers"),
        ("--models mpl", "did you mean 'mlp'"),
        ("--quick --models mlp", "one case"),
        ("--threads 0", "1 or more"),
        ("--peers you", "known: loop"),
    ],
)
def test_errors_name_the_setting(arguments, message) -> None:
    with pytest.raises(SettingError, match=message):
        CliRunner().invoke(app, arguments.split(), catch_exceptions=False)


def test_the_module_is_imported_without_torch() -> None:
    code = "import sys, fedfdp.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
