"""docs/models.md: its files as they stand there, and its commands one after the other."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    page = re.sub(r"^<!-- shown: .*? -->\n```\n.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)  # not run
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language == kind]


@pytest.fixture
def call(monkeypatch, capsys):
    """The command line in this process: exit code and stdout."""
    from fedfdp.cli.main import main

    def run(line: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", shlex.split(line.removeprefix("PYTHONPATH=. ")))
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, capsys.readouterr().out

    return run


def test_the_commands_of_the_page_run_in_order(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks("python") + blocks("toml"):
        if named := re.match(r"# (\S+\.(?:py|toml))\n", block):
            Path(named[1]).write_text(block)
    np.savez("new.npz", x=load_digits().images[:30, None])
    answers = {}
    for line in "".join(blocks("")).splitlines():
        code, answers[line] = call(line)
        assert code == 0, line
    check = next(out for line, out in answers.items() if "--trainable" in line)
    assert "trained: 330 parameters" in check  # 32·10 + 10
    summary = json.loads(Path("runs/head/summary.json").read_text())
    assert summary["weights"] == 490  # 48·10 + 10, as in run.toml
    summary = json.loads(Path("runs/by-accuracy/summary.json").read_text())
    assert summary["metric"] == "accuracy"
    assert Path("predictions.csv").read_text().count("\n") == 31
    sys.modules.pop("mynet", None)


def test_the_table_of_built_in_models_is_what_the_command_says():
    from fedfdp.models.inspection import listed

    for row in listed():
        sizes = " | ".join("–" if size is None else f"{size:,}" for size in (row.on_images, row.on_table))
        assert re.search(rf"\| `{row.name}` \| .* \| {sizes} \|", PAGE), row.name
