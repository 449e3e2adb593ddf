"""The page without a browser: what is inside it, and what cannot be."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedfdp.core.errors import RunError
from fedfdp.report import page
from fedfdp.report.contents import document
from fedfdp.report.figures import draw_figures, draw_runs
from fedfdp.report.page import render, write_page
from fedfdp.runs.folder import RunFolder
from report.hostile import HOSTILE

ASSETS = Path(page.__file__).parent / "assets"
LIBRARY_TEXT = (ASSETS / page.LIBRARY).read_text(encoding="utf-8")


class Parts(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        key = attributes.get("id") or tag
        self.texts[key] = self.texts.get(key, "") + data


def made(*paths):
    facts = document([RunFolder(path) for path in paths])
    return facts, Parts(render(facts)), render(facts)


def test_the_embedded_numbers_are_those_of_the_run(write_run):
    path = write_run()
    _, parts, _ = made(path)
    run = json.loads(parts.texts["facts"])["runs"][0]
    summary = json.loads((path / "summary.json").read_text())
    history = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert run["result"]["accuracy"] == summary["accuracy"]
    assert run["result"]["psi"] == summary["psi"]
    assert run["history"]["epsilon"] == [entry["epsilon"] for entry in history]
    assert run["clients"]["accuracy"] == [entry["clients"]["accuracy"] for entry in history]


def test_nothing_outside_is_named_and_the_policy_allows_only_what_is_inside(write_run):
    _, parts, page = made(write_run("a"), write_run("b"))
    assert set(re.findall(r"\w+://[\w.]+", page)) == {"http://www.w3.org"}  # names of XML, in the charting library
    assert "://" not in page.replace(LIBRARY_TEXT, "")
    assert not [1 for tag, attributes in parts.elements if "src" in attributes or tag in ("link", "img", "iframe")]
    assert {attributes["href"] for tag, attributes in parts.elements if tag == "a"} == {"#main"}
    policy = next(a["content"] for t, a in parts.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        text = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"insertAdjacentHTML|document\.write|eval\(|Function\(|fetch\(|XMLHttpRequest", page)
    assert "innerHTML" not in page.replace(LIBRARY_TEXT, "")  # the library has a function for it, which nothing calls


def test_hostile_names_stay_data(write_run, tmp_path):
    name = "<script>alert('run')</script>".replace("/", "\u2215")
    path = write_run(name, names=[HOSTILE, "=1+1", "\u202egnp", "a\nb", ""])
    _, parts, page = made(path)
    tags = [tag for tag, _ in parts.elements]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "alert" not in re.sub(
        r'<script type="application/json".*?</script>|<title>.*?</title>', "", page, flags=re.DOTALL
    )
    assert json.loads(parts.texts["facts"])["runs"][0]["clients"]["names"][0] == HOSTILE
    assert "<script>alert" not in page


def test_a_folder_whose_name_is_not_unicode(write_run, tmp_path):
    path = write_run("plain").rename(tmp_path / "\udcff")
    write_page(document([RunFolder(path)]), tmp_path / "page.html")
    assert "\\udcff" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_page_stays_small(write_run):
    _, _, one = made(write_run())
    assert len(LIBRARY_TEXT) < 300_000
    assert len(one) - len(LIBRARY_TEXT) < 100_000
    _, _, many = made(write_run("many", names=[f"client-{i}" for i in range(200)], rounds=tuple(range(1, 17))))
    assert len(many) - len(LIBRARY_TEXT) < 350_000


def test_where_it_cannot_be_written(write_run, tmp_path):
    facts = document([RunFolder(write_run())])
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / "page.html", tmp_path / "run"):
        with pytest.raises(RunError, match=r"cannot be written: .*; give another --out"):
            write_page(facts, bad)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"regression": True},
        {"private": False},
        {"finished": False, "rounds": ()},
        {"elsewhere": True},
        {"names": ["only"]},
        {"names": [f"_{i} $x^$ {HOSTILE}" for i in range(200)], "rounds": (1,)},
    ],
    ids=["plain", "regression", "not private", "begun", "elsewhere", "one client", "two hundred"],
)
@pytest.mark.filterwarnings("ignore:Glyph")
def test_figures_for_papers_are_drawn_of_any_run(write_run, tmp_path, options):
    path = write_run("$a_b$ {x", **options)
    drawn = draw_figures(document([RunFolder(path)]), tmp_path / "figures")
    assert drawn
    for pdf in drawn:
        assert pdf.read_bytes().startswith(b"%PDF-")
        assert pdf.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    draw_runs([RunFolder(path), RunFolder(write_run("other"))], tmp_path / "both.png")


def test_several_runs_have_a_pareto_figure(write_run, tmp_path):
    facts = document([RunFolder(write_run(name)) for name in "abc"])
    names = {path.name for path in draw_figures(facts, tmp_path / "figures")}
    assert names == {"curves.pdf", "pareto.pdf", "holdings-1.pdf", "holdings-2.pdf", "holdings-3.pdf"}
    with pytest.raises(RunError, match="give another --figures"):
        draw_figures(facts, tmp_path / "a" / "run.json")


def test_the_charting_library_comes_with_its_licences():
    """Of every package that is inside the script; scripts/charts/build.js gathers them."""
    licences = (ASSETS / "vendor" / "plot.LICENSE.txt").read_text(encoding="utf-8")
    packages = re.findall(r"^(\S+) [\d.]+ \((.+)\)$", licences, re.MULTILINE)
    assert dict(packages).keys() >= {"@observablehq/plot", "d3-scale", "d3-shape", "d3-selection"}
    assert {licence for _, licence in packages} <= {"ISC", "MIT"}
    assert licences.count("Permission ") >= len(packages)
    assert "</script" not in LIBRARY_TEXT
    assert not re.search(r"sourceMappingURL|import\(", LIBRARY_TEXT)
