"""Every block of the README and the docs: run as printed in an empty folder, or marked with why it is not."""

import doctest
import json
import re
import runpy
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from docs_blocks import PAGES, ROOT, Block, Command, blocks, check, commands

# Pages whose commands other tests run, in an order or with files of their own, and pages of measured results whose
# commands take minutes to days. Their Python blocks run here, their commands are parsed.
ELSEWHERE = {
    "models.md": "tests/models/test_models_page.py",
    "deploy.md": "tests/deploy/test_deploy_page.py",
    "years.md": "tests/deploy/, tests/cli/test_years_cli.py",
    "README.md": "the same commands are on the pages it links to; the default preset fetches MNIST",
    "methods.md": "tests/examples/test_own_method.py, tests/experiments/test_traffic.py",
    "theory.md": "tests/cli/test_lambda_cli.py, tests/cli/test_lambda_from_run.py",
    "choosing-lambda.md": "tests/cli/test_tune_cli.py; minutes to hours",
    "results.md": "tests/cli/test_reproduce_cli.py; hours",
    "results-tables.md": "tests/cli/test_reproduce_cli.py; hours",
    "results-fair.md": "tests/cli/test_reproduce_cli.py; hours",
    "results-small.md": "tests/cli/test_reproduce_cli.py; hours",
    "performance.md": "tests/cli/test_bench_cli.py; minutes",
}
COMMANDS = ("", "sh", "text")


class Reader:
    """Follows a page in an empty folder: runs its blocks one after the other and remembers what was said."""

    def __init__(self, page: Path, folder: Path, monkeypatch, capsys) -> None:
        self.page, self.folder, self.monkeypatch, self.capsys = page, folder, monkeypatch, capsys
        self.names: dict[str, object] = {"__name__": "example"}
        self.said = ""
        monkeypatch.chdir(folder)
        generated = shutil.ignore_patterns("holders.csv", "clinics", "offices", "__pycache__")
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=generated)

    def follow(self, block: Block) -> None:
        if block.language == "toml":
            tomllib.loads(block.text)
            if block.name is not None:
                self.write(block)
        elif block.language == "python":
            self.write(block) if block.name else self.python(block)
        elif block.marker == "prints":
            assert self.said == block.text.strip()
        elif block.marker in ("shown", "parsed", "slow") or self.page.name in ELSEWHERE:
            return
        else:
            for command in commands(block):
                self.command(command, fails=block.marker == "fails")

    def write(self, block: Block) -> None:
        (self.folder / block.name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / block.name).write_text(block.text, encoding="utf-8")

    def python(self, block: Block) -> None:
        """Blocks with >>> are doctests; in the others `print(…)  # answer` says what is printed."""
        if ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, self.names, self.page.name, str(self.page), 0)
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            return
        self.capsys.readouterr()
        exec(compile(block.text, str(self.page), "exec"), self.names)
        if answers := re.findall(r"print\(.*\)  # (.*)", block.text):
            assert self.capsys.readouterr().out.splitlines() == answers

    def command(self, command: Command, *, fails: bool = False) -> str:
        """In this process, which has torch already; gives what it prints on stdout."""
        words, answer = list(command.words), None
        if words[:2] == ["fedfdp", "plan"] and command.comment:
            answer = re.fullmatch(r"(\w+): ([\d.]+)", command.comment)
            assert answer is not None, command.line
            words.append("--json")
        with self.monkeypatch.context() as patch:
            for name, value in command.environment.items():
                assert name == "PYTHONPATH", command.line
                patch.syspath_prepend(str(self.folder / value))
            patch.setattr(sys, "argv", words if words[0] == "fedfdp" else words[1:])
            self.capsys.readouterr()
            code = self.call(words)
        out, err = self.capsys.readouterr()
        assert code == (2 if fails else 0), f"{command.line}\n{err}"
        self.said = err.strip().replace(f"{self.folder}/", "")
        if answer is not None:
            assert f"{json.loads(out)[answer[1]]:.{len(answer[2].partition('.')[2])}f}" == answer[2], command.line
        return out

    def call(self, words: list[str]) -> int:
        from fedfdp.cli.main import main

        try:
            if words[0] == "fedfdp":
                main()
            else:
                assert words[0] == "python", words
                runpy.run_path(words[1], run_name="__main__")
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0


@pytest.fixture
def read(tmp_path, monkeypatch, capsys):
    before = set(sys.modules)
    yield lambda page: Reader(page, tmp_path, monkeypatch, capsys)
    for name in set(sys.modules) - before:  # modules of the page must not meet those of another
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


LONG = ("comparing.md", "holders.md")  # pages whose runs take a minute


def page_param(page: Path):
    return pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])


@pytest.mark.parametrize("page", [page_param(page) for page in PAGES])
def test_a_page_runs_as_printed_from_top_to_bottom(page, read):
    reader = read(page)
    for block in blocks(page):
        reader.follow(block)


SLOW = [(page, block) for page in PAGES for block in blocks(page) if block.marker == "slow"]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), SLOW, ids=lambda given: getattr(given, "text", given.__class__.__name__))
def test_what_is_measured_on_a_page_is_what_its_command_prints(page, block, read):
    """Within what partitions differ by: another processor rounds otherwise, and another version draws other noise."""
    reader = read(page)
    for command in commands(block):
        shown = page.read_text(encoding="utf-8").partition(block.text)[2]
        head, *rows = reader.command(command).strip().splitlines()
        before, *shown_rows = shown[shown.index("|") :].splitlines()[: 1 + len(rows)]
        assert head == before
        for found, on_page in zip(rows[1:], shown_rows[1:], strict=True):
            (label, mean, behind, _), (shown_label, shown_mean, *_) = cells(found), cells(on_page)
            low_to_high = [float(number) for number in re.findall(r"-?[\d.]+", behind)[1:]]
            spread = (low_to_high[1] - low_to_high[0]) / 2 if low_to_high else 0.2
            assert label == shown_label
            assert float(mean) == pytest.approx(float(shown_mean), abs=spread)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options_and_every_other_block_says_why_it_is_not_run(page):
    for block in blocks(page):
        if block.language in ("python", "toml"):
            assert block.marker is None
            continue
        assert block.language in COMMANDS
        assert block.marker in (None, "shown", "parsed", "slow", "fails", "prints")
        assert block.reason or block.marker not in ("shown", "parsed", "slow"), f"{page.name}: why? {block.text}"
        if block.marker not in ("shown", "prints"):
            found = commands(block)
            assert found
            for command in found:
                check(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page):
    for named in re.findall(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)`", page.read_text(encoding="utf-8")):
        assert (ROOT / "tests" / named).exists(), f"{page.name} names {named}"


def test_the_threat_table_names_a_test_wherever_something_is_protected():
    section = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8").split("## Against whom")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 15
    for who, protected, _, tests in rows:
        assert "test_" in tests or protected.strip() == "**not covered**", who


def test_every_preset_named_in_the_readme_exists():
    from fedfdp.runs.layers import presets

    named = re.findall(r"fedfdp run ([a-z][a-z0-9-]*)(?:\s|$)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert set(named) <= set(presets())
