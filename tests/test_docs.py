"""Every Python example in the README and the docs runs as printed, in an empty folder."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch, capsys):
    """Blocks with >>> are doctests; in the others `print(…)  # answer` says what is printed."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            continue
        capsys.readouterr()
        exec(compile(block, str(page), "exec"), names)
        if answers := re.findall(r"print\(.*\)  # (.*)", block):
            assert capsys.readouterr().out.splitlines() == answers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_preset_named_in_the_readme_exists():
    from fedfdp.config import presets

    named = re.findall(r"fedfdp run ([a-z][a-z0-9-]*)(?:\s|$)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert set(named) <= set(presets())
