"""A table with nothing but data, holder, label and ε in its config: planned, run, and refused where it must be."""

import csv
import json
import random

import pytest

TOML = """
name = "clinics"
[data]
source = "patients.csv"
holder = "clinic"
label = "{label}"
{target}
columns = {{ age = [0, 100], stay = [0, 50], sex = ["f", "m"] }}
ignore = ["{other}"]
[privacy]
epsilon = {epsilon}
"""


@pytest.fixture
def table(tmp_path):
    """600 patients at three clinics whose return and cost depend on age and stay."""
    rng = random.Random(0)
    with (tmp_path / "patients.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["clinic", "age", "stay", "sex", "back", "cost"])
        for _ in range(600):
            age, stay = rng.uniform(0, 100), rng.uniform(0, 50)
            back = "yes" if age / 100 + stay / 50 + rng.gauss(0, 0.1) > 1 else "no"
            cost = 100 * age + 200 * stay + rng.gauss(0, 500)
            out.writerow([rng.choice("abb"), round(age, 1), round(stay, 1), rng.choice("fm"), back, round(cost)])

    def write(label="back", epsilon=3.0):
        other = "cost" if label == "back" else "back"
        target = 'classes = ["no", "yes"]' if label == "back" else "target = [0, 20000]"
        (tmp_path / "run.toml").write_text(TOML.format(label=label, target=target, epsilon=epsilon, other=other))

    write()
    return write


def test_the_plan_shows_what_is_chosen_and_why(fedfdp, table):
    code, out, _ = fedfdp("plan", "run.toml", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["facts"]["weights"] == 10  # 4 inputs and a constant, for each of two classes
    assert plan["chosen"]["privacy.q"]["value"] == 1.0
    assert plan["chosen"]["rounds"]["value"] == 100
    assert plan["settings"]["privacy"]["epsilon"] == 3.0
    assert "privacy.epsilon" not in plan["chosen"]
    assert plan["warnings"] == []
    assert len(plan["signal_over_noise"]["by_client"]) == 2
    code, out, _ = fedfdp("plan", "run.toml", "--set", "privacy.epsilon=0.02")
    assert code == 0
    assert "- expect nothing to be learnt: the signal is" in out
    code, _, err = fedfdp("plan", "run.toml", "--sigma", "2")
    assert code == 2
    assert err.startswith("fedfdp: --sigma = '2.0': not together with a file; use --set")


def test_epsilon_is_used_and_matters(fedfdp, table):
    sigmas = []
    for epsilon in (1, 8):
        code, out, _ = fedfdp("run", "run.toml", "--set", f"privacy.epsilon={epsilon}", "--json")
        summary = json.loads(out)
        assert code == 0
        assert 0.99 * epsilon < summary["epsilon"] <= epsilon
        sigmas.append(summary["sigma"])
    assert sigmas[0] > 5 * sigmas[1]
    assert summary["accuracy"] > 0.9


def test_what_is_left_of_a_budget_is_said(fedfdp, table):
    code, out, _ = fedfdp("run", "run.toml", "--set", "privacy.sigma=60", "--set", "rounds=20")
    assert code == 0
    assert "of epsilon = 3 used: " in out
    assert "times the rounds, or sigma = 6." in out  # 20 rounds at q = 1 take √20/√100 of the 14.2 that 100 take


def test_regression_needs_no_more_and_predicts_within_its_range(fedfdp, table, tmp_path):
    table("cost", 8.0)
    code, out, _ = fedfdp("run", "run.toml", "--out", "costs", "--json")
    assert code == 0
    assert json.loads(out)["loss"] < 0.05  # of targets with a variance of 0.1
    (tmp_path / "new.csv").write_text("age,stay,sex\n0,0,f\n100,50,m\n1000,1000,m\n")
    code, out, _ = fedfdp("predict", "costs", "new.csv")
    values = [float(row["value"]) for row in csv.DictReader(out.splitlines())]
    assert code == 0
    assert all(0 <= value <= 20000 for value in values)
    assert values[0] < 6000 < 12000 < values[1]


def test_a_run_that_diverges_is_no_success(fedfdp, table, tmp_path):
    table("cost", 8.0)
    far = ["--set", "algorithm.lr=1000000", "--set", "algorithm.initial_loss=0.3", "--out", "far"]
    code, _, err = fedfdp("run", "run.toml", *far)
    assert code == 3
    last = err.strip().splitlines()[-1]
    assert last.startswith("fedfdp: the run diverged: after round ")
    assert "kept in far; algorithm.lr = 1e+06: try a tenth of it, or leave it out to have it chosen" in last
    summary = json.loads((tmp_path / "far" / "summary.json").read_text())
    assert summary["diverged"].startswith("after round ")
    assert summary["rounds"] < 100
    assert (tmp_path / "far" / "privacy.md").is_file()  # what was released was paid for


def test_a_delta_that_protects_nobody_is_refused(fedfdp, table):
    code, out, err = fedfdp("run", "run.toml", "--set", "privacy.delta=0.1")
    assert (code, out) == (2, "")
    assert err.startswith("fedfdp: privacy.delta = 0.1: not below 1/n = ")
    assert "of the largest holder" in err


def test_no_budget_no_plan(fedfdp, table):
    code, _, err = fedfdp("run", "run.toml", "--set", "privacy.epsilon=none")
    assert code == 2
    assert "privacy.epsilon = None: left out together with sigma and rounds" in err
