"""A section of the report is one module with its script, and one name in a list."""

import json
import re

import pytest

from fedfdp.report import sections
from fedfdp.report.contents import document
from fedfdp.report.page import render
from fedfdp.report.section import Section
from fedfdp.runs.folder import RunFolder


@pytest.fixture
def add(monkeypatch, tmp_path):
    """Adds a section for the length of a test."""
    before = list(sections.SECTIONS)

    def put(name, script, **parts):
        file = tmp_path / f"{name}.js"
        file.write_text(script)
        sections.SECTIONS.append(Section(name, f"About {name}", script=file, **parts))

    yield put
    sections.SECTIONS[:] = before


def test_a_toy_section_has_its_part_and_its_script(add, write_run):
    add(
        "toy",
        "drawings.toy = (run) => [paragraph(run.toys)];",
        of_run=lambda run: {"toys": f"{len(run.history)} evaluations"},
    )
    add("toys", "drawings.toys = (runs) => [];", of_runs=lambda runs: {"both": [run["toys"] for run in runs]})
    facts = document([RunFolder(write_run("a")), RunFolder(write_run("b", rounds=(1,)))])
    assert [run["toys"] for run in facts["runs"]] == ["3 evaluations", "1 evaluations"]
    assert facts["both"] == ["3 evaluations", "1 evaluations"]
    assert facts["sections"][-2:] == [
        {"name": "toy", "title": "About toy", "compares": False},
        {"name": "toys", "title": "About toys", "compares": True},
    ]
    page = render(facts)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1)
    assert "drawings.toy = (run)" in script
    assert script.index("drawings.toy =") < script.index("start();")  # drawn when all of them are there


def test_a_section_cannot_overwrite_what_is_there(add, write_run):
    add("toy", "drawings.toy = () => [];", of_run=lambda run: {"clients": []})
    with pytest.raises(ValueError, match="report section 'toy' gives \\['clients'\\], which is there already"):
        document([RunFolder(write_run())])


def test_every_section_draws_itself_under_its_name(write_run):
    for section in sections.SECTIONS:
        assert f"drawings.{section.name} = (" in section.drawing()
    assert [s["name"] for s in document([RunFolder(write_run())])["sections"]] == list(sections.NAMES)


def test_folders_of_runs_that_kept_fewer_metrics(write_run):
    path = write_run()
    for name in ("summary.json", "metrics.jsonl"):
        text = (path / name).read_text()
        lines = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else [json.loads(text)]
        for entry in lines:
            for gone in ("worst_accuracy", "worst_loss", "psi"):
                entry.pop(gone)
        (path / name).write_text("\n".join(json.dumps(entry) for entry in lines))
    facts = document([RunFolder(path)])
    (run,) = facts["runs"]
    assert (run["result"]["psi"], run["history"]["worst_loss"]) == (None, [None, None, None])
    assert run["result"]["accuracy"] == run["history"]["accuracy"][-1]
    assert "drawings.summary" in render(facts)


def test_runs_on_other_partitions_are_not_on_the_same_data(write_run):
    """Three runs of one dataset, each better than the one before; the last on records that were dealt out otherwise."""
    results = [{"accuracy": a, "psi": p, "epsilon": 1.0} for a, p in ((0.5, 0.3), (0.6, 0.2), (0.7, 0.1))]
    paths = [write_run(f"run-{i}", result=result) for i, result in enumerate(results)]
    for path, digest in zip(paths, ("5ec4e7", "5ec4e7", "07be4"), strict=True):
        (path / "run.json").write_text(json.dumps({"data": digest}))
    facts = document([RunFolder(path) for path in paths])
    assert [run["partition"] for run in facts["runs"]] == [1, 1, 2]
    assert facts["front"] == [2, 3]
    assert "5ec4e7" not in json.dumps(facts)  # a digest of records is no private release
