"""fedfdp data check, and a run from two files, as a new user meets them."""

import json

import numpy as np
import pytest
import torch

from fedfdp.cli.data_check import NOTICE
from fedfdp.data import Federation
from fedfdp.data.duplicates import duplicates
from fedfdp.data.validation import review
from fedfdp.privacy.dpsgd import DPSGD

RUN = """name = "hospitals"
rounds = 20

[data]
source = "holders.csv"
holder = "hospital"
label = "readmitted"
classes = ["no", "yes"]
columns = { age = [0, 110], stay = [0, 10], sex = ["f", "m"] }

[model]
name = "linear"

[privacy]
epsilon = 3.0
"""


@pytest.fixture
def files(tmp_path):
    """Three hospitals of 200, 120 and 20 records; one record of north is also at south; some stays are long."""
    rng = np.random.default_rng(0)
    lines = ["hospital,age,sex,stay,readmitted"]
    for hospital, rows in ("north", 200), ("south", 120), ("tiny", 20):
        for _ in range(rows):
            age, stay = int(rng.integers(18, 95)), rng.exponential(3)
            back = "yes" if (age - 55) / 20 + rng.normal() / 2 > 0 else "no"
            lines.append(f"{hospital},{age},{rng.choice(['f', 'm'])},{stay:.4f},{back}")
    lines.append("south" + lines[1].removeprefix("north"))
    (tmp_path / "holders.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_two_files_make_a_run(fedfdp, files):
    assert len(RUN.splitlines()) <= 15
    code, out, _ = fedfdp("run", "run.toml", "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["clients"], summary["data"], summary["rounds"]) == (3, "holders.csv", 20)
    assert summary["epsilon"] <= 3.0
    assert (files / "runs" / "hospitals" / "privacy.md").is_file()


def test_a_run_is_summed_up_by_the_holders_names(fedfdp, files):
    code, out, _ = fedfdp("run", "run.toml", "--set", "rounds=2")
    assert code == 0
    lines = out.splitlines()
    at = lines.index("accuracy by client (beside it its 95 % interval)")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["north", "south", "tiny"]
    table = (files / "holders.csv").read_text()
    (files / "holders.csv").write_text(table.replace("tiny", "[red]of the late Doctor Faust and his heirs"))
    (files / "run.toml").write_text(RUN.replace("stay = [0, 10], ", "").replace("label", 'unit = "stay"\nlabel'))
    code, out, _ = fedfdp("run", "run.toml", "--set", "rounds=2")
    assert "\n  [red]of the late Doctor…  " in out  # as it is written, and no longer than a line can hold
    assert "for every stay" in out


def test_a_regression_is_summed_up_by_its_losses(fedfdp, files):
    regression = RUN.replace('label = "readmitted"\nclasses = ["no", "yes"]', 'label = "age"\ntarget = [0, 110]')
    regression = regression.replace("age = [0, 110], ", "readmitted = ['no', 'yes'], ")
    (files / "run.toml").write_text(regression)  # the first loss is taken from the declared range
    code, out, err = fedfdp("run", "run.toml", "--set", "rounds=2")
    assert code == 0, err
    summary = json.loads((files / "runs" / "hospitals" / "summary.json").read_text())
    history = json.loads((files / "runs" / "hospitals" / "metrics.jsonl").read_text().splitlines()[-1])
    lines = out.splitlines()
    assert lines[0].split() == ["test", "loss", f"{summary['loss']:.4f}"]
    worst = next(line.split() for line in lines if line.startswith("worst client"))
    assert worst == ["worst", "client", f"{max(history['clients']['loss']):.4f}"]
    at = lines.index("RMSE by client")
    # a target of [0, 110] is scaled to [−1, 1], so one unit of the loss's root is 55 years
    assert [(line.split()[0], float(line.split()[-1])) for line in lines[at + 1 : at + 4]] == [
        (name, pytest.approx(loss**0.5 * 55, rel=1e-3))
        for name, loss in zip(("north", "south", "tiny"), history["clients"]["loss"], strict=True)
    ]


def test_a_check_of_a_run_says_who_holds_what_and_gives_advice(fedfdp, files):
    (files / "run.toml").write_text(RUN + "q = 0.05\nsigma = 2.0\n")
    code, out, _ = fedfdp("data", "check", "run.toml", "--json")
    found = json.loads(out)
    assert (code, found["notice"], found["records"], found["shape"]) == (0, NOTICE, 341, [4])
    holders = {holder["name"]: holder for holder in found["holders"]}
    assert {name: (h["train"], h["test"]) for name, h in holders.items()} == {
        "north": (150, 50),
        "south": (90, 31),
        "tiny": (15, 5),
    }
    assert sum(sum(h["classes"]) for h in holders.values()) == 150 + 90 + 15
    long_stays = sum(float(line.split(",")[3]) > 10 for line in (files / "holders.csv").read_text().splitlines()[1:])
    stay = next(column for column in found["columns"] if column["name"] == "stay")
    assert (stay["outside"], stay["missing"], stay["kind"]) == (long_stays, 0, "[0, 10]")
    assert found["shared"] == [["north", "south", 1]]
    advice = "\n".join(found["advice"])
    # q·n = 0.05 · 15 = 0.75 < σ = 2; it takes q = 2/15
    assert "holder 'tiny' is too small: 15 training records at q = 0.05 make batches of 0.8" in advice
    assert "it takes q of at least 0.13" in advice
    assert "holder 'north' is too small" not in advice
    assert f"{long_stays / 341:.1%} of column 'stay' lies outside [0, 10]" in advice
    # one equal row is no more than chance explains: stays beyond 10 are clamped, and equal within north too
    assert found["repeated"] >= 1
    assert "records are at" not in advice


def test_a_check_for_people(fedfdp, files):
    code, out, _ = fedfdp("data", "check", "run.toml")
    assert code == 0
    assert out.splitlines()[0] == NOTICE
    assert "holders.csv: 341 records of shape 4, 3 holders, 2 classes" in out
    assert "tiny" in out


@pytest.mark.parametrize(
    ("task", "y"), [("multi-label", [1, 0, 1]), ("language", [1, 0, 1]), ("tokens", [1, 0, 1]), ("segmentation", [[1]])]
)
def test_a_check_names_the_task(fedfdp, files, task, y):
    np.savez(files / "r.npz", x=np.zeros((20, 3)), y=np.array([y] * 20), site=np.arange(20) % 2)
    named = f'rounds = 2\n[data]\nsource = "r.npz"\nholder = "site"\nclasses = 2\ntask = "{task}"\n'
    (files / "run.toml").write_text(f'{named}[model]\nname = "linear"\n[algorithm]\nname = "fedavg"\nlr = 0.1\n')
    code, out, err = fedfdp("data", "check", "run.toml")
    assert (code, out.splitlines()[1]) == (0, f"r.npz: 20 records of shape 3, 2 holders, {task}"), err


def test_a_check_of_a_file_of_which_nothing_is_known(fedfdp, files):
    code, out, _ = fedfdp("data", "check", "holders.csv", "--json")
    found = json.loads(out)
    assert (code, found["records"]) == (0, 341)
    assert [(f["name"], f["kind"], f["different"]) for f in found["columns"]] == [
        ("hospital", "text", 3),
        ("age", "number", 21),
        ("sex", "text", 2),
        ("stay", "number", 21),
        ("readmitted", "text", 2),
    ]
    assert 'holder = "hospital"' in found["settings"]
    assert "age = [0, 100]" in found["settings"]
    with open(files / "notes.csv", "w") as file:
        file.write("town,note,ill\n" + "".join(f"oslo,patient {i},{i % 2}\n" for i in range(30)))
    settings = json.loads(fedfdp("data", "check", "notes.csv", "--json")[1])["settings"]
    assert 'ignore = ["town", "note"]  # town: always the same; note: names a row' in settings
    assert "note =" not in settings
    text = fedfdp("data", "check", "holders.csv")[1]
    assert text.startswith(NOTICE)
    assert "# NOT PUBLIC YET" in text


def test_a_check_of_archives_and_folders(fedfdp, files):
    np.savez(files / "d.npz", x=np.zeros((5, 2)), y=np.zeros(5))
    found = json.loads(fedfdp("data", "check", "d.npz", "--json")[1])
    assert (found["records"], found["parts"][0]["type"]) == (5, "float64 (5, 2)")
    (files / "folder").mkdir()
    (files / "d.npz").rename(files / "folder" / "north.npz")
    found = json.loads(fedfdp("data", "check", "folder", "--json")[1])
    assert (found["records"], found["parts"][0]["name"]) == (5, "north.npz")


def test_a_check_of_a_dataset_by_name(fedfdp):
    found = json.loads(fedfdp("data", "check", "digits", "--json")[1])
    assert (found["records"], len(found["holders"]), found["columns"]) == (1797, 10, [])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (("60,", "x,"), None),
        (("hospital,", "clinic,"), "holders.csv: no column 'hospital' as data.holder says"),
        (("north,", ","), "holders.csv, row 1, column 'hospital': is empty; every row needs its holder"),
        (("yes\n", "perhaps\n"), "label 'perhaps' is no class; known: no, yes"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(fedfdp, files, spoil, said):
    text = (files / "holders.csv").read_text()
    (files / "holders.csv").write_text(text.replace(*spoil, 1) if said else "")
    for command in (["run", "run.toml"], ["data", "check", "run.toml"]):
        code, out, err = fedfdp(*command)
        assert (code, out) == (2, "")
        assert len(err.strip().splitlines()) == 1
        assert (said or "empty (0 bytes)") in err


def federation(*parts):
    return Federation.from_clients({name: (x, y, x[:1], y[:1]) for name, (x, y) in parts}, classes=2)


def test_duplicates_are_counted_within_and_across_holders():
    x, y = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
    # test parts repeat each holder's first record; c holds record 0 with the other label, which is another record
    clients = federation(("a", (x[:3], y[:3])), ("b", (x[1:5], y[1:5])), ("c", (x[:1], 1 - y[:1])))
    found = duplicates(clients)
    assert (found.repeated, found.different, found.shared) == (3, 6, (("a", "b", 2),))


def test_copies_are_told_from_rows_that_are_equal_by_chance():
    rng = np.random.default_rng(0)
    y = torch.arange(600) % 2
    fine = torch.from_numpy(rng.normal(size=(600, 3)))
    again = (torch.cat([fine[400:], fine[:2]]), torch.cat([y[400:], y[:2]]))
    advice = review(Federation.from_clients({"a": (fine[:400], y[:400]), "b": again}, classes=2), None).advice
    assert len(advice) == 1
    assert advice[0].startswith("2 records are at 'a' and at 'b', more than chance explains")
    # 3 columns of 4 values and a label: 128 possible rows, so that 600 are equal over and over
    coarse = torch.from_numpy(rng.integers(0, 4, (600, 3)).astype(np.float32))
    thirds = {name: (coarse[i::3], y[i::3]) for i, name in enumerate("abc")}
    by_chance = Federation.from_clients(thirds, classes=2)
    assert duplicates(by_chance).shared
    assert review(by_chance, None).advice == ()
    # in a table of 4^6 · 2 rows, 60 of 200 copied from one holder to another are more than chance
    wider = torch.from_numpy(rng.integers(0, 4, (600, 6)).astype(np.float32))
    parts = [wider[:200], torch.cat([wider[200:400], wider[:60]]), wider[400:]]
    labels = [y[:200], torch.cat([y[200:400], y[:60]]), y[400:]]
    copied = Federation.from_clients(dict(zip("abc", zip(parts, labels, strict=True), strict=True)), classes=2)
    assert [pair[:2] for pair in duplicates(copied).suspicious] == [("a", "b")]


def test_many_small_holders_are_one_line(fedfdp, tmp_path):
    rng = np.random.default_rng(0)
    sizes = [400, *range(4, 34)]  # one that is large enough, and thirty that are not
    rows = [f"h{i:02},{rng.normal():.6f},{rng.integers(0, 2)}" for i, n in enumerate(sizes) for _ in range(n)]
    (tmp_path / "t.csv").write_text("who,v,y\n" + "\n".join(rows))
    (tmp_path / "run.toml").write_text(
        'rounds = 5\nmodel = { name = "linear" }\nprivacy = { sigma = 2.0, q = 0.05, clip = 1.0, delta = 0.003 }\n'
        '[data]\nsource = "t.csv"\nholder = "who"\nlabel = "y"\nclasses = 2\ncolumns = { v = [-3, 3] }\n'
    )
    code, out, err = fedfdp("data", "check", "run.toml")
    assert code == 0, err
    lines = [line for line in out.splitlines() if line.startswith("- ") and "too small" in line]
    # a quarter of each is for the test, rounded up: 3 to 24 of them are left to train on
    (line,) = lines
    assert "30 of 31 holders are too small by themselves (3 to 24 training records, the middle one " in line
    assert "'h01', 'h02', 'h03', …" in line
    assert "the 12 largest and the 12 smallest of 31 holders: 300 to 3 training records" in out
    few = json.loads(fedfdp("data", "check", "run.toml", "--json")[1])
    assert len(few["holders"]) == 31


def test_advice_on_privacy_that_cannot_work():
    x, y = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 2
    clients = federation(("a", (x, y)), ("b", (x[:1] + 1, y[:1])))
    private = DPSGD(epsilon=1.0, sigma=2.0, q=0.5, delta=0.1, sigma_loss=5.0)
    advice = "\n".join(review(clients, private, step=(private.event(),)).advice)
    assert "holder 'b' is too small: 1 training records at q = 0.5 make batches of 0.5" in advice
    assert "no q helps: merge it with another holder" in advice
    assert "holder 'a': delta = 0.1 is not below 1/n" in advice
    none = review(clients, None)
    assert none.advice == ()
