"""The officer's page: the unit first, the register's numbers, names as text, two printed sides."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedfdp.privacy.unit import Unit
from fedfdp.report.officer import officers_page
from fedfdp.runs.register import Entry, Records, Spent, Total
from report.browser import Browser, find


def made(holders=3, runs=2, unit="country", name="life.csv", spread=False) -> list[Records]:
    spent = {f"holder {i}": Spent(1.5, 1e-5, None, 3.0) for i in range(holders)}
    entries = tuple(
        Entry(Path(f"run-{i}"), "run", "2026-01-0" + str(1 + i % 9), name, Unit(unit), "fedfdp", "finished", spent,
              seeded=True, warnings=("this was a simulation",))
        for i in range(runs)
    )  # fmt: skip
    totals = tuple(
        Total(who, runs, 1.5 * runs + (0.01 * -i if spread else 0), 1e-5 * runs, 2.2, 1e-5, None)
        for i, who in enumerate(spent)
    )
    return [Records(name, Unit(unit), entries, totals)]


def test_it_says_the_unit_first_the_total_the_odds_and_the_date():
    page = officers_page(made(), today="2026-11-17")
    assert page.index("One country") < page.index("ε = 3.00")
    assert "Made on 2026-11-17" in page
    assert "it would be ε = 2.20 at δ = 1e-05" in page
    assert "1 in 50,000" in page  # δ = 2e-5
    assert "<td>50%</td><td><b>95.3%</b>" in page  # e³/(1 + e³)
    assert "any country at the holder that spent most, over all 2 runs together" in page
    assert "this was a simulation" in page


def test_equal_rows_fold_and_many_different_ones_are_counted():
    page = officers_page(made(holders=40))
    assert "each of 40: holder 0, holder 1, …" in page
    page = officers_page(made(holders=40, spread=True))
    assert "and 32 more holders that spent less" in page


def test_a_run_without_privacy_is_an_alarm():
    (records,) = made()
    bare = Entry(Path("bare"), "run", "2026-01-01", "life.csv", Unit("country"), "fedavg", "finished")
    page = officers_page([Records(records.name, records.unit, (*records.entries, bare), records.totals)])
    assert "1 of these runs had no privacy protection at all (bare)" in page


def test_names_are_text():
    page = officers_page(made(name="<script>alert(1)</script>.csv", unit="<b>x"))
    assert "<script>" not in page
    assert "<b>x" not in page
    assert "default-src 'none'; style-src 'sha256-" in page


def test_no_warning_is_left_out_in_silence():
    (records,) = made(runs=1)
    entry = replace(records.entries[0], warnings=tuple(f"warning {i}" for i in range(11)))
    page = officers_page([replace(records, entries=(entry,))])
    assert page.count("class='alarm'>warning") == 8
    assert "3 more warnings: they are in the statements (privacy.md) of the runs" in page
    assert "more warnings" not in officers_page([records])


def test_report_terminal_and_statement_name_the_same_unit(tmp_path, monkeypatch, capsys):
    import sys

    from fedfdp.cli.main import main

    rows = [f"{'en'[i % 2]},c{i // 3},{i % 100},{'yes' if i % 100 > 50 else 'no'}" for i in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["site,country,age,ill", *rows]) + "\n")
    (tmp_path / "run.toml").write_text(
        'rounds = 2\n[data]\nsource = "t.csv"\nholder = "site"\nlabel = "ill"\nunit = "country"\n'
        'classes = ["no", "yes"]\n[data.columns]\nage = [0, 100]\n[model]\nname = "linear"\n'
        "[privacy]\nepsilon = 5.0\nsigma = 2.0\nq = 0.2\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedfdp", "run", "run.toml", "--out", "run", "--report"])
    main()
    assert "for every country" in capsys.readouterr().out
    page = (tmp_path / "run" / "privacy.md").read_text()
    assert page.splitlines()[2].startswith("Every country of every client is protected with **ε = ")
    said = json.loads((tmp_path / "run" / "privacy.json").read_text())
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    facts = json.loads(re.search(r'id="facts">(.*?)</script>', html).group(1))
    (run,) = facts["runs"]
    assert run["unit"] == "country"
    assert run["privacy"]["guarantee"] == said["guarantee"]
    assert said["guarantee"].replace("ε = ", "**ε = ", 1).replace(" (zero", "** (zero", 1) == page.splitlines()[2]
    assert run["by_class"]["names"] == ["no", "yes"]
    assert "Every record" not in html.split("</script>")[0]
    monkeypatch.setattr(sys, "argv", ["fedfdp", "officer", "run"])
    main()
    assert "for every country" in capsys.readouterr().out
    assert "<strong>One country</strong>" in (tmp_path / "run" / "officer.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(find() is None, reason="no browser")
@pytest.mark.parametrize(("holders", "runs", "spread"), [(1, 1, False), (60, 40, True)])
def test_it_prints_on_two_sides_of_a4_and_fits_a_phone(tmp_path, holders, runs, spread):
    file = tmp_path / "officer.html"
    file.write_text(officers_page(made(holders, runs, spread=spread)), encoding="utf-8")
    browser = Browser(tmp_path / "profile")
    try:
        browser.resize(390, 844)
        browser.call("Page.navigate", url=file.as_uri())
        browser.wait("document.readyState === 'complete'")
        assert browser.js("document.documentElement.scrollWidth") <= 390
        printed = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    finally:
        browser.close()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed))) <= 2
