import json
from dataclasses import replace

import pytest
from torch import nn

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.privacy import Event, epsilon
from fedfdp.runs.statement import Account, Statement

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5)


def statement(federation, folder, **options) -> tuple[dict, str]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    settings = {"algorithm": fedfdp.FedFDP(lr=1.0), "privacy": PRIVATE, "rounds": 4} | options
    fedfdp.train(model, federation, out=folder, **settings)
    return json.loads((folder / "privacy.json").read_text()), (folder / "privacy.md").read_text()


def test_every_number_is_that_of_the_events(digits, tmp_path):
    made, page = statement(digits, tmp_path / "run")
    events = [Event(0.2, (2.0, 5.0), 4)]
    assert made["epsilon"] == pytest.approx(epsilon(events, 1e-5))
    assert made["epsilon_replace_one"] == pytest.approx(epsilon(events, 1e-5, adjacency="replace-one"))
    assert made["epsilon_replace_one"] > made["epsilon"]
    assert [c["records"] for c in made["clients"]] == [len(c.train) for c in digits.clients]
    assert f"ε = {made['epsilon']:.4f} at δ = 1e-05" in page


def test_it_says_what_is_released_and_what_is_not_covered(digits, tmp_path):
    made, page = statement(digits, tmp_path / "run")
    assert set(made["released"]) == {"update", "loss"}
    assert made["mechanism"]["sigma_beside"] == [5.0]
    plain, _ = statement(digits, tmp_path / "plain", algorithm=fedfdp.FedAvg(lr=1.0))
    assert set(plain["released"]) == {"update"}
    assert plain["mechanism"]["sigma_beside"] == []
    for words in ("zero-out", "replaced by another", "is declared and public", "sees every upload", "stays secret"):
        assert words in page
    for words in ("hyper-parameters", "raw records", "dp-accounting", "torch"):
        assert words in page


def test_it_warns_of_a_known_seed(digits, tmp_path):
    made, page = statement(digits, tmp_path / "run")
    assert any("simulation" in warning for warning in made["warnings"])
    assert page.count("**Warning:**") == 1


def test_there_is_none_for_a_delta_that_protects_nobody(digits, tmp_path):
    with pytest.raises(SettingError, match=r"privacy\.delta = 0\.2: not below 1/n = "):
        statement(digits, tmp_path / "run", privacy=replace(PRIVATE, delta=0.2))
    assert not (tmp_path / "run").exists()


def test_the_largest_holder_decides_whether_delta_protects_anybody():
    """A node that comes late may have more records than those who were there when the run began."""
    accounts = tuple(Account(f"h{n}", n, 1.0, 2.0, 3.0) for n in (400, 300_000))
    said = Statement("fedavg", PRIVATE, 4, accounts, {}, (), repeatable=False)
    assert any("n = 300000 records" in warning for warning in said.warnings)  # δ·n = 3
    assert not replace(said, accounts=accounts[:1]).warnings


def test_a_schedule_chosen_on_the_way_claims_its_whole_budget(digits, tmp_path):
    adaptive = fedfdp.ALIDPFL(lr=1.0, round_budget=2)
    made, page = statement(digits, tmp_path / "run", algorithm=adaptive, privacy=replace(PRIVATE, accountant="rdp"))
    assert made["epsilon"] == 8.0
    assert made["epsilon_replace_one"] is None
    assert "not known" in page


def test_an_interrupted_run_has_one_too(digits, tmp_path):
    def interrupt(update) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        statement(digits, tmp_path / "run", on_update=interrupt)
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert made["rounds"] == 1
    # When it ends may depend on what it showed, so all four planned rounds are claimed, not the one that was paid.
    assert made["epsilon"] == pytest.approx(epsilon([Event(0.2, (2.0, 5.0), 4)], 1e-5))
    assert any("written after 1 of 4 rounds" in warning for warning in made["warnings"])
