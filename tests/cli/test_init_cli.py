"""fedfdp init: from a table alone to a run, and a run.toml that hides nothing."""

import gzip
import json
import tomllib

import numpy as np
import pytest

from fedfdp.runs import config

HEADER = "clinic;patient;id;age;sex;stay;admitted;hour;note;ward;one;back;score"


@pytest.fixture
def table(tmp_path):
    """300 rows of all kinds, with decimal commas, missing values, row numbers, free text and a constant."""
    rng = np.random.default_rng(0)
    rows = [HEADER]
    for i in range(300):
        age, stay, back = rng.integers(18, 95), rng.exponential(6), rng.choice(["no", "yes", "None"])
        sex, ward = rng.choice(["f", "m", ""]), rng.choice(["a", "b", "NA"])
        date, hour = f"{rng.integers(1, 29):02}.{rng.integers(1, 13):02}.{2015 + i % 8}", f"{rng.integers(0, 24):02}:30"
        score = "" if i % 50 == 0 else f"{rng.normal(50, 9):.3f}".replace(".", ",")
        who = f"{rng.choice(['north', 'south', 'east'])};p{i // 3};{i}"
        text = f"{stay:.2f}".replace(".", ",")
        rows.append(f"{who};{age};{sex};{text};{date};{hour};free text {i};{ward};7;{back};{score}")
    (tmp_path / "clinics.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return "clinics.csv.gz"


def test_a_table_alone_makes_a_config_that_runs(fedfdp, table, tmp_path):
    code, out, err = fedfdp("init", table, "--holder", "clinic", "--label", "back", "--epsilon", "4")
    assert code == 0, err
    assert "were read from clinics.csv.gz: replace them by public ones" in out
    text = (tmp_path / "run.toml").read_text()
    values = tomllib.loads(text)
    assert values["privacy"] == {"epsilon": 4}
    data = values["data"]
    assert (data["holder"], data["label"], data["classes"], data["unlabelled"]) == (
        "clinic", "back", ["no", "yes"], "skip",
    )  # fmt: skip
    assert data["ignore"] == ["patient", "id", "note", "one"]
    columns = data["columns"]
    assert columns["age"] == [0, 100]  # 18 to 94, widened to tens, and from 0
    assert columns["sex"] == {"categories": ["f", "m"], "other": True, "missing": "other"}
    assert columns["admitted"] == {
        "format": "%d.%m.%Y", "range": ["2015-01-01", "2022-12-31"], "cycles": ["year"],
    }  # fmt: skip
    assert columns["hour"] == {"cycles": ["day"]}
    low, high = columns["score"]["range"]
    assert (columns["score"]["missing"], columns["score"]["indicator"]) == ((low + high) / 2, True)
    # whatever was read from values is named; an hour's cycle is public by itself
    assert data["unchecked"] == ["age", "sex", "stay", "admitted", "ward", "score", "back"]
    assert "# NOT PUBLIC YET" in text
    code, out, _ = fedfdp("data", "check", "run.toml")
    assert code == 0
    assert "say of age, sex, stay, admitted, ward, score, back was read from the records (data.unchecked)" in out
    code, out, err = fedfdp("run", "run.toml", "--set", "rounds=2", "--json")
    assert code == 0, err
    assert "not public yet, and not covered by ε: what data.columns says of age, sex, stay" in err
    assert json.loads(out)["clients"] == 3
    said = "the ranges, categories or classes of age, sex, stay, admitted, ward, score, back were read from the records"
    assert said in (tmp_path / "runs" / "clinics" / "privacy.md").read_text()
    assert any(said in line for line in json.loads((tmp_path / "runs/clinics/privacy.json").read_text())["warnings"])


def test_checked_facts_are_no_longer_warned_of(fedfdp, table, tmp_path):
    fedfdp("init", table, "--holder", "clinic", "--label", "back")
    code, _, err = fedfdp("run", "run.toml", "--set", "rounds=1", "--set", "data.unchecked=[]")
    assert code == 0
    assert "not public" not in err
    assert "read from the records" not in (tmp_path / "runs" / "clinics" / "privacy.md").read_text()


def test_a_quantity_persons_and_nobody_who_holds(fedfdp, table, tmp_path):
    code, _, err = fedfdp(
        "init", table, "--holder", "none", "--target", "score", "--unit", "patient", "--out", "r.toml"
    )
    assert code == 0, err
    loaded = config.load(str(tmp_path / "r.toml"))
    assert (loaded.data.holder, loaded.data.partition, loaded.data.unit) == (None, "iid", "patient")
    low, high = loaded.data.target
    assert low < 30 < 70 < high
    code, _, err = fedfdp("run", "r.toml", "--set", "rounds=1")
    assert code == 0, err


def test_private_ranges_instead(fedfdp, table, tmp_path):
    code, _, err = fedfdp("init", table, "--holder", "clinic", "--label", "back", "--ranges", "private")
    assert code == 0, err
    loaded = config.load(str(tmp_path / "run.toml")).data
    assert (loaded.columns["age"], loaded.columns["stay"]) == ("private", "private")
    assert loaded.estimates
    assert "age" not in loaded.unchecked


def test_what_is_not_given_is_asked_for(fedfdp, table, tmp_path, monkeypatch):
    import sys

    import typer

    class Terminal:
        def isatty(self):
            return True

    asked = []

    def prompt(question, default, type=None):
        asked.append((question, default))
        return {"Which column is to be predicted?": "ward"}.get(question, default)

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(sys, "stdin", Terminal())
    code, _, err = fedfdp("init", table, "--holder", "clinic")
    assert code == 0, err
    assert [question.split("?")[0] for question, _ in asked] == [
        "Which column is to be predicted", "Which column says whose row it is", "Privacy budget epsilon",
    ]  # fmt: skip
    assert 'label = "ward"' in (tmp_path / "run.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--holder = None: which column of clinics.csv.gz?; give --holder; its columns: clinic, patient"),
        (("--holder", "clinic"), "--label = None: which column of clinics.csv.gz?"),
        (("--holder", "klinic", "--label", "back"), "--holder = 'klinic': no such column; did you mean 'clinic'?"),
        (("--holder", "clinic", "--label", "clinic"), "must be different columns"),
        (("--holder", "clinic", "--label", "note"), "--label = 'note': has more than 20 different values"),
        (("--holder", "clinic", "--label", "score"), "has more than 20 different values, which are no classes; for a"),
        (("--holder", "clinic", "--label", "one"), "--label = 'one': has 1 different values"),
        (("--holder", "clinic", "--target", "ward"), "--target = 'ward': holds text, not numbers"),
        (("--holder", "ward", "--label", "back"), "--holder = 'ward': "),
        (("--holder", "clinic", "--label", "back", "--target", "score"), "given beside --label"),
        (("--holder", "clinic", "--label", "back", "--epsilon", "-1"), "--epsilon = -1.0: above 0"),
        (("--holder", "clinic", "--label", "back", "--ranges", "all"), "--ranges = 'all': read or private"),
        (("--holder", "clinic", "--label", "back", "--out", "absent/run.toml"), "--out = 'absent/run.toml': cannot be"),
        (
            ("--holder", "clinic", "--label", "back", "--unit", "patient", "--ranges", "private"),
            "--ranges = 'private': protects single records",
        ),
    ],
)
def test_wrong_answers_are_one_line_and_write_nothing(fedfdp, table, tmp_path, arguments, said):
    code, out, err = fedfdp("init", table, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.toml"))


def test_a_file_that_is_there_is_kept(fedfdp, table, tmp_path):
    (tmp_path / "run.toml").write_text("mine")
    code, _, err = fedfdp("init", table, "--holder", "clinic", "--label", "back")
    assert code == 2
    assert "--out = 'run.toml': is there already" in err
    assert (tmp_path / "run.toml").read_text() == "mine"
    assert fedfdp("init", table, "--holder", "clinic", "--label", "back", "--force")[0] == 0


def test_a_check_of_a_table_scaffolds_the_same_and_it_runs(fedfdp, tmp_path):
    rows = "".join(f"{('oslo', 'rome')[i % 2]},{i % 7},{('a', 'b')[i // 2 % 2]}\n" for i in range(80))
    (tmp_path / "t.csv").write_text("city,dose,class\n" + rows)
    settings = json.loads(fedfdp("data", "check", "t.csv", "--json")[1])["settings"]
    assert 'holder = "city"' in settings
    assert 'label = "class"' in settings
    (tmp_path / "run.toml").write_text(settings)
    code, _, err = fedfdp("run", "run.toml", "--set", "rounds=1")
    assert code == 0, err
    fedfdp("init", "t.csv", "--holder", "city", "--label", "class", "--out", "same.toml")
    assert (tmp_path / "same.toml").read_text() == settings


def test_awkward_names_are_quoted(fedfdp, tmp_path):
    sites = ('"A ""q"""', "B")  # A "q", as CSV writes it
    rows = "".join(f"{sites[i % 2]},{i * i},{('ja', 'nein')[i // 2 % 2]},é{i % 3}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("who is it?,mean [mm],true,größe\n" + rows)
    code, _, err = fedfdp("init", "t.csv", "--holder", "who is it?", "--label", "true", "--out", "r.toml")
    assert code == 0, err
    code, _, err = fedfdp("run", "r.toml", "--set", "rounds=1")
    assert code == 0, err


def test_the_docs_lead_from_the_installation_to_a_report_in_five_commands():
    """tests/test_docs.py runs them, on the table that the page makes."""
    from docs_blocks import ROOT, blocks, commands

    found = [c for block in blocks(ROOT / "docs" / "start.md") if not block.language for c in commands(block)]
    lines = [command.line for command in found if block_of_a_table(command.line)]
    assert [line.split()[:2] for line in lines[:5]] == [
        ["pip", "install"], ["fedfdp", "init"], ["fedfdp", "data"], ["fedfdp", "run"], ["fedfdp", "report"],
    ]  # fmt: skip


def block_of_a_table(line):
    """Not the first run, which needs no table."""
    return "first" not in line
