"""The page as a reader has it: in a real headless Chromium."""

import csv
import io
import itertools
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fedfdp.report import sections
from fedfdp.report.contents import document
from fedfdp.report.page import write_page
from fedfdp.report.section import Section
from fedfdp.runs.folder import RunFolder
from report.browser import Browser, find
from report.hostile import HOSTILE
from toys import toy_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="needs chromium, which is not installed: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture
def page(browser, tmp_path):
    """Opens a page about these runs; at the end nothing was said on the console and nothing else was asked for."""
    browser.console.clear()
    browser.requests.clear()

    def show(*paths: Path, **options) -> Browser:
        file = tmp_path / "page.html"
        write_page(document([RunFolder(path) for path in paths]), file)
        browser.open(file, **options)
        return browser

    yield show
    browser.js("1")
    assert browser.console == []
    asked = {address for address in browser.requests if not address.startswith("blob:")}
    assert asked == {(tmp_path / "page.html").as_uri()}


def figure(title: str) -> str:
    return (
        f"[...document.querySelectorAll('figure')].find(f => f.querySelector('h3').textContent === {json.dumps(title)})"
    )


def table(title: str) -> str:
    captions = "[...document.querySelectorAll('caption')]"
    return f"{captions}.find(c => c.textContent === {json.dumps(title)}).closest('.tablebox')"


def texts(browser: Browser, expression: str, selector: str) -> list[str]:
    return browser.js(f"[...({expression}).querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def history(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_every_chart_of_a_run_is_drawn(page, write_run):
    b = page(write_run())
    assert b.js("[...document.querySelectorAll('figure h3')].map(e => e.textContent)") == [
        "How many clients have which accuracy", "How many clients have which loss",
        "Test accuracy of each client by round", "Test loss of each client by round",
        "Test accuracy by round", "Ψ by round", "ε spent by round", "Training records of each class at each client",
    ]  # fmt: skip
    marks = "f.querySelectorAll('.chart svg :is(path, rect, circle, line, text)').length"
    assert b.js(f"[...document.querySelectorAll('figure')].every(f => {marks} > 5)")
    assert b.js("[...document.querySelectorAll('svg[role=img]')].every(s => s.getAttribute('aria-label').length > 20)")
    assert not b.js("/NaN|undefined|Infinity/.test(document.body.innerText + document.querySelector('main').innerHTML)")
    lines = b.js(f"({figure('Test accuracy by round')}).querySelectorAll('.line path').length")
    assert lines == 2


def test_a_new_metric_and_a_new_section_are_drawn(page, write_run, tmp_path):
    path = write_run(result={"median_loss": 0.75})
    lines = [{**entry, "median_loss": 0.25 * i} for i, entry in enumerate(history(path), start=1)]
    for entry in lines:
        entry["clients"]["zeros"] = [0.1, 0.2, 0.3, 0.4]
    (path / "metrics.jsonl").write_text("\n".join(json.dumps(entry) for entry in lines))
    script = tmp_path / "toy.js"
    script.write_text("drawings.toy = (run) => [paragraph(`${run.toys} evaluations`)];")
    sections.SECTIONS.append(Section("toy", "Toys", lambda run: {"toys": len(run.history)}, script=script))
    try:
        with toy_metrics():
            b = page(path)
    finally:
        sections.SECTIONS.pop()
    assert b.js("document.querySelector('#toy').textContent") == "Toys3 evaluations"
    assert b.js("[...document.querySelectorAll('nav a')].pop().textContent") == "Toys"
    cards = texts(b, "document.querySelector('.cards')", "dt")
    assert cards == ["accuracy", "worst client", "Ψ test", "median client", "ε", "rounds"]
    assert "0.7500" in texts(b, "document.querySelector('.cards')", "dd")[3]
    label = f"({figure('Median loss by round')}).querySelector('.chart svg').getAttribute('aria-label')"
    assert b.js(label) == "Median loss by round. median: from 0.2500 to 0.7500."
    assert texts(b, table("Clients of run"), "thead th") == [
        "client", "training records", "test records", "accuracy", "loss", "zeros",
    ]  # fmt: skip
    assert texts(b, table("Clients of run"), "tbody tr:last-child td")[-1] == "40.00\u00a0%"


def test_intervals_and_bands_are_drawn_where_they_are_given(page, write_run, tmp_path):
    script = tmp_path / "toy.js"
    rows = "[{name: 'north', value: 0.5, low: 0.25, high: 0.75}, {name: 'east', value: null, low: null, high: null}]"
    band = "{label: 'mean', style: styleOf(0), x: [1, 2], y: [0.5, 0.6], low: [0.4, 0.5], high: [0.6, 0.7]}"
    script.write_text(
        f"const all = {{kind: 'percent', label: 'accuracy', reference: {{value: 0.6, label: 'one class'}}}};"
        f"drawings.toy = () => [intervalFigure({{...all, title: 'Intervals', rows: {rows}}}).node,"
        f"lineFigure({{title: 'Band', kind: 'percent', xLabel: 'round', series: [{band}]}}).node];"
    )
    sections.SECTIONS.append(Section("toy", "Toys", script=script))
    try:
        b = page(write_run())
    finally:
        sections.SECTIONS.pop()
    one = figure("Intervals")
    said = b.js(f"({one}).querySelector('.chart svg').getAttribute('aria-label')").replace("\u00a0", " ")
    assert said == "Intervals. north: 50.00 % (25.00 % to 75.00 %)."
    ends = "['x1', 'x2'].map(name => Number(line.getAttribute(name)))"
    low, high = b.js(f"(line => {ends})(({one}).querySelector('.interval line'))")
    middle = b.js(f"Number(({one}).querySelector('circle').getAttribute('cx'))")
    assert middle == pytest.approx((low + high) / 2, abs=0.6)
    assert "one class" in texts(b, one, ".chart text")
    assert b.js(f"({figure('Band')}).querySelectorAll('.chart [fill-opacity] path').length") == 1
    b.js(f"({figure('Band')}).querySelector('details').open = true")
    b.wait(f"!!({figure('Band')}).querySelector('table')")
    assert texts(b, figure("Band"), "thead th") == ["round", "mean", "mean, low", "mean, high"]


def test_values_under_the_pointer_and_under_the_arrow_keys(page, write_run):
    path = write_run()
    b, one = page(path), figure("Test accuracy by round")
    last = history(path)[-1]
    b.js(f"({one}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = b.js(f"({one}).querySelector('.chart svg').getBoundingClientRect().toJSON()")
    b.hover(box["right"] - 25, box["top"] + 60)
    b.wait(f"!({one}).querySelector('.tip').hidden")
    shown = b.js(f"({one}).querySelector('.tip').textContent").replace("\u00a0", " ")
    assert shown == f"round 6all test records{last['accuracy']:.2%}worst client{last['worst_accuracy']:.2%}".replace(
        "%", " %"
    )
    b.hover(5, 5)
    b.wait(f"({one}).querySelector('.tip').hidden")
    b.js(f"({one}).querySelector('.chart svg').focus()")
    b.key("ArrowRight")
    b.key("ArrowRight")
    said = b.js(f"({one}).querySelector('[aria-live]').textContent").replace("\u00a0", " ")
    second = history(path)[1]
    mean, worst = (f"{100 * second[name]:.2f} %" for name in ("accuracy", "worst_accuracy"))
    assert said == f"round 4: all test records {mean}, worst client {worst}"


def test_legends_hide_and_show(page, write_run):
    b, one = page(write_run("a"), write_run("b"), write_run("c")), figure("Ψ by round")
    count = f"({one}).querySelectorAll('.chart .line path').length"
    button = "document.querySelector('#comparison .legend button')"
    assert b.js(count) == 3
    b.js(f"{button}.focus()")
    b.key("Enter")
    assert b.js(count) == 2
    assert b.js(f"{button}.getAttribute('aria-pressed')") == "false"
    assert b.js(f"({figure('Pareto: accuracy and ε')}).querySelectorAll('.chart circle').length") == 2
    b.key("Enter")
    assert b.js(count) == 3


def test_dark_by_preference_and_by_button(page, write_run):
    path = write_run()
    dark, light = "rgb(20, 23, 27)", "rgb(255, 255, 255)"
    ground = "getComputedStyle(document.body).backgroundColor"
    b = page(path, dark=True)
    assert b.js(ground) == dark
    b.js("document.querySelector('#theme').click()")
    assert b.js(ground) == light
    b = page(path, dark=False)
    assert b.js(ground) == light
    b.js("document.querySelector('#theme').click()")
    assert b.js(ground) == dark
    assert b.js("document.querySelector('#theme').textContent") == "Light mode"


def test_downloads_are_whole_and_exact(page, write_run):
    names = ["north, east", 'say "hi"', "=1+1", "a & b_c 100% $x$ \\ ~^{}#"]
    path = write_run(names=names)
    b, last = page(path, dark=True), history(path)[-1]["clients"]
    clients = table("Clients of run")
    name, text = b.saved(f"({clients}).querySelector('.save-csv').click()")
    assert name == "clients-of-run.csv"
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["client", "training records", "test records", "accuracy", "loss"]
    assert [row[0] for row in rows[1:]] == [*names[:2], "'=1+1", names[3]]
    assert [float(row[3]) for row in rows[1:]] == last["accuracy"]
    assert [float(row[4]) for row in rows[1:]] == last["loss"]

    name, text = b.saved(f"({clients}).querySelector('.save-tex').click()")
    assert name == "clients-of-run.tex"
    lines = text.splitlines()
    assert lines[4] == "  \\begin{tabular}{lrrrr}"
    assert lines[6] == "  client & training records & test records & accuracy & loss \\\\"
    percent = f"{100 * last['accuracy'][3]:.2f}\\,\\%"
    escaped = "a \\& b\\_c 100\\% \\$x\\$ \\textbackslash{} \\textasciitilde{}\\textasciicircum{}\\{\\}\\#"
    assert lines[11] == f"  {escaped} & 19 & 6 & {percent} & {last['loss'][3]:.4f} \\\\"

    name, text = b.saved(f"({figure('Ψ by round')}).querySelector('.save-svg').click()")
    assert name == "psi-by-round.svg"
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert "class=" not in text
    paths = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert [e.get("stroke") for e in paths] == ["rgb(0, 121, 92)"]  # the light theme's, though the page is dark
    assert paths[0].get("d").count("L") == 2

    b.js(f"({figure('Ψ by round')}).querySelector('details').open = true")
    b.wait(f"!!({figure('Ψ by round')}).querySelector('table')")
    _, text = b.saved(f"({figure('Ψ by round')}).querySelector('.save-csv').click()")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [[int(r[0]), float(r[1])] for r in rows[1:]] == [[e["round"], e["psi"]] for e in history(path)]


def test_every_figure_gives_an_svg_and_every_table_its_files(page, write_run):
    b = page(write_run("a"), write_run("b"))
    b.js("document.querySelectorAll('details').forEach(d => { d.open = true })")
    b.wait("[...document.querySelectorAll('figure')].every(f => f.querySelector('table'))")
    for kind, check in (
        ("svg", ElementTree.fromstring),
        ("csv", lambda text: list(csv.reader(io.StringIO(text), strict=True))),
        ("tex", str),
    ):
        count = b.js(f"document.querySelectorAll('.save-{kind}').length")
        assert count >= 14
        for i in range(count):
            name, text = b.saved(f"document.querySelectorAll('.save-{kind}')[{i}].click()")
            assert name.endswith(f".{kind}")
            check(text)
            assert "NaN" not in text
            assert "undefined" not in text


def test_classes_have_their_names_and_intervals_are_drawn(page, write_run):
    path = write_run(names=["a", "b"], rounds=(1, 2))
    classes = {"names": ["ill", "<b>well"], "constant": "ill", "records": [10, 10], "recall": [0.5, 1.0],
               "precision": [1.0, 0.67], "confusion": [[5, 5], [0, 10]]}  # fmt: skip
    lines = [
        {**e, "classes": classes, "accuracy_low": 0.2, "accuracy_high": 0.9,
         "clients": {**e["clients"], "accuracy_low": [0.1, 0.2], "accuracy_high": [0.8, 0.9]}}
        for e in history(path)
    ]  # fmt: skip
    (path / "metrics.jsonl").write_text("\n".join(json.dumps(entry) for entry in lines))
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "classes": classes}))
    b = page(path)
    caption = "What the model answers (columns) for the test records of each class (rows)"
    assert texts(b, table(caption), "tbody th") == ["ill", "<b>well"]
    assert texts(b, table(caption), "tbody td")[:2] == ["5", "5"]
    drawn = b.js(
        f"({figure('Test accuracy of each client, with its 95 % interval')}).querySelectorAll('.interval line').length"
    )
    assert drawn == 2
    for width in (1280, 390):
        b.resize(width)
        assert b.js("document.documentElement.scrollWidth") <= width


def test_groups_are_compared_and_each_client_has_its_gaps(page, write_run):
    groups = {"column": "sex", "favourable": "<b>yes", "names": ["f", "<i>m"], "records": [4, 6]}
    groups |= {"favourable_records": [3, 0], "accuracy": [0.5, 0.8], "given": [0.75, 0.25], "recognised": [0.6, None]}
    path = write_run(names=["a", "b"], result={"groups": groups, "parity_gap": 0.5, "opportunity_gap": None})
    lines = history(path)
    lines[-1]["clients"] |= {"parity_gap": [0.125, None], "opportunity_gap": [None, None]}
    (path / "metrics.jsonl").write_text("\n".join(json.dumps(entry) for entry in lines))
    b = page(path)
    caption = "Groups of sex, all test records, run"
    assert texts(b, table(caption), "tbody th") == ["f", "<i>m"]
    assert texts(b, table(caption), "tbody td")[:5] == ["4", "50.00\xa0%", "75.00\xa0%", "3", "60.00\xa0%"]
    assert texts(b, table("Gaps between groups at each client, run"), "tbody td") == ["12.50\xa0%", "–", "–", "–"]
    assert "differs by 50.0 % (demographic parity)" in b.js("document.querySelector('#groups').textContent")


def test_the_comparison_is_of_the_right_numbers(page, write_run):
    runs = [
        write_run(f"s{i}", seed=i, result={"accuracy": a, "psi": p})
        for i, (a, p) in enumerate([(0.9, 0.2), (0.8, 0.3)])
    ]
    b = page(*runs)
    cells = "map(r => [...r.children].map(c => c.textContent))"
    rows = b.js(f"[...({table('The runs beside each other')}).querySelectorAll('tbody tr')].{cells}")
    assert [row[1] for row in rows] == ["s0", "s1"]
    assert [row[2].replace("\u00a0", "") for row in rows] == ["90.00%", "80.00%"]
    assert [row[4] for row in rows] == ["0.2000", "0.3000"]
    assert [row[-1] for row in rows] == ["yes", "no"]
    mean = texts(
        b, table("Means over runs that differ only in their seeds, with sample standard deviations"), "tbody td"
    )
    assert mean[3].replace("\u00a0", "") == "85.00% ± 7.07%"  # √(2 · 0.05²)
    b.js(f"({table('The runs beside each other')}).querySelectorAll('thead button')[2].click()")
    assert texts(b, table("The runs beside each other"), "tbody th") == ["2", "1"]
    b.js(
        "(() => { const p = document.querySelector('#picker'); p.value = '1'; p.dispatchEvent(new Event('change')) })()"
    )
    assert "80.00" in b.js("document.querySelector('#summary .lead').textContent")


HARD = {
    "hostile": {"names": [HOSTILE, HOSTILE, "\u202egnp", "a\nb", "", "x" * 500]},
    "regression": {"regression": True},
    "not private": {"private": False},
    "begun": {"finished": False, "rounds": ()},
    "unfinished": {"finished": False},
    "one evaluation of one client": {"names": ["only"], "rounds": (1,)},
    "two hundred": {"names": [f"client-{i}" for i in range(200)], "rounds": tuple(range(1, 16))},
    "elsewhere": {"elsewhere": True},
    "a hundred classes": {"names": [f"h{i}" for i in range(40)], "classes": 100},
    "not noted": {"noted": False, "private": False},
}


@pytest.mark.parametrize("kind", HARD)
def test_hard_runs_on_a_phone(page, write_run, kind):
    path = write_run("run", **HARD[kind])
    b = page(path, width=360, height=740)
    assert b.js("document.documentElement.scrollWidth") <= 360
    b.js("document.querySelectorAll('details').forEach(d => { d.open = true })")
    b.js("new Promise(done => setTimeout(done, 100))")
    assert b.js("document.documentElement.scrollWidth") <= 360
    text = b.js("document.body.textContent.replace(document.querySelector('#facts').textContent, '')")
    assert b.js("document.querySelectorAll('main script, main img').length") == 0
    assert not b.js("/NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    words = {
        "not private": "This run is not private.",
        "unfinished": "This run is not finished: everything below is as of round 6.",
        "begun": "The model has not been evaluated yet.",
        "regression": "The targets are numbers, not classes",
        "elsewhere": "which classes a client holds never left it",
        "not noted": "This run's folder has no clients.json",
        "hostile": "client",
    }
    assert words.get(kind, "Privacy statement") in text
    if kind == "two hundred":
        b.js("[...document.querySelectorAll('button')].find(e => e.textContent === 'Show all 200 clients').click()")
        assert b.js(f"({figure('Test accuracy of each client by round')}).querySelectorAll('.panel').length") == 200
        assert b.js("document.documentElement.scrollWidth") <= 360


def test_headings_landmarks_and_the_first_key(page, write_run):
    b = page(write_run("a"), write_run("b"))
    levels = b.js("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 or (before, after) == (2, 4) for before, after in itertools.pairwise(levels))
    assert b.js("['header', 'nav', 'main', 'footer'].every(t => document.querySelectorAll('body > ' + t).length === 1)")
    assert b.js("[...document.querySelectorAll('table')].every(t => t.caption && t.querySelector('tbody th'))")
    assert b.js("[...document.querySelectorAll('th')].every(h => h.scope)")
    named = "e.getAttribute('aria-label') || e.textContent.trim() || e.labels.length"
    assert b.js(f"[...document.querySelectorAll('button, select')].every(e => {named})")
    ids = b.js("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    b.key("Tab")
    assert b.js("document.activeElement.className") == "skip"
    b.key("Enter")
    assert b.js("location.hash") == "#main"


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(page, write_run, dark):
    """WCAG AA: text against its ground at least 4.5 to 1, lines of charts 3 to 1; by the formula of the guideline."""
    b = page(write_run(), dark=dark)
    names = ["paper", "panel", "warn", "ink", "soft", "link", *(f"s{i}" for i in range(8))]
    value = "getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()"
    styles = b.js(f"Object.fromEntries({json.dumps(names)}.map(n => [n, {value}]))")

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        a, b = sorted((luminance(styles[one]), luminance(styles[other])))
        return (b + 0.05) / (a + 0.05)

    for ground in ("paper", "panel"):
        assert min(contrast(text, ground) for text in ("ink", "soft", "link")) >= 4.5
    assert contrast("ink", "warn") >= 4.5
    assert min(contrast(f"s{i}", "paper") for i in range(8)) >= 3
