"""An accountant of one's own, from the plan over the ledger to the statement. Its numbers are worked out beside it."""

import json
from pathlib import Path

import pytest
from dp_accounting.rdp import RdpAccountant
from torch import nn
from typer.testing import CliRunner

import fedfdp
from fedfdp.cli.main import app
from fedfdp.core.errors import BudgetError, RunError, SettingError
from fedfdp.privacy import Event, Ledger, epsilon, plan
from fedfdp.privacy.accounting import max_count
from fedfdp.privacy.accounting.renyi import ORDERS
from fedfdp.runs.folder import LEDGER
from support import dp_event

OWN = "own_accountant:PlainComposition"
STEP = Event(0.2, (2.0, 5.0))


def plain(count: int, delta: float = 1e-5) -> float:
    """`count` steps, each (ε₁, δ/count)-DP by dp-accounting used directly."""
    one = RdpAccountant(ORDERS)
    one.compose(dp_event(STEP))
    return count * float(one.get_epsilon(delta / count))


def test_it_prices_and_plans() -> None:
    assert epsilon([Event(0.2, (2.0, 5.0), 6)], 1e-5, accountant=OWN) == pytest.approx(plain(6), rel=1e-9)
    rounds = max_count([STEP], 30.0, 1e-5, accountant=OWN)
    assert plain(rounds) <= 30.0 < plain(rounds + 1)
    found = plan(epsilon=30.0, q=0.2, sigma=2.0, sigma_loss=5.0, accountant=OWN)
    assert (found.rounds, found.epsilon_replace_one) == (rounds, None)
    assert found.epsilon == pytest.approx(plain(rounds), rel=1e-9)
    solved = plan(epsilon=30.0, q=0.2, rounds=6, accountant=OWN)  # the least σ, to a ten-thousandth
    cost = [epsilon([Event(0.2, (solved.sigma * near,), 6)], 1e-5, accountant=OWN) for near in (1.0, 0.9998)]
    assert cost[0] <= 30.0 < cost[1]


def test_the_command_says_whose_claim_it_is(tmp_path: Path) -> None:
    asked = ["plan", "--q", "0.2", "--sigma", "2", "--sigma-loss", "5", "--rounds", "6", "--accountant", OWN]
    said = CliRunner().invoke(app, [*asked, "--json", "--compare", "--png", str(tmp_path / "plan.png")])
    content = json.loads(said.stdout)
    assert [opinion["accountant"] for opinion in content["accountants"]] == ["pld", "rdp", "paper", OWN]
    assert content["epsilon"] == pytest.approx(plain(6), rel=1e-9)
    assert (tmp_path / "plan.png").exists()
    words = " ".join(CliRunner().invoke(app, asked).stdout.replace("│", " ").split())
    assert "author's claim" in words


def test_a_ledger_keeps_its_budget_and_its_name(tmp_path: Path) -> None:
    path, rule = tmp_path / LEDGER, {"client": "a", "data": "d", "config": "c", "budget": 30.0, "delta": 1e-5}
    rounds = max_count([STEP], 30.0, 1e-5, accountant=OWN)
    with Ledger.open(path, accountant=OWN, **rule) as ledger:
        for number in range(rounds):
            ledger.charge(number, "r", [STEP], replayable=True)
        with pytest.raises(BudgetError, match=rf"round {rounds} does not fit epsilon = 30"):
            ledger.charge(rounds, "r", [STEP], replayable=True)
        with pytest.raises(RunError, match=f"{OWN} is for rounds of one price"):
            ledger.charge(rounds, "r", [Event(0.2, (9.0,))], replayable=True)
    assert json.loads(path.read_text().splitlines()[0])["accountant"] == OWN
    with Ledger.open(path, accountant=OWN, **rule) as ledger:
        assert ledger.epsilon() == pytest.approx(plain(rounds), rel=1e-9)
        assert ledger.epsilon() <= ledger.epsilon_so_far() <= 30.0
        assert ledger.epsilon("replace-one") == float("inf")
    with pytest.raises(RunError, match="ledger of another accountant"):
        Ledger.open(path, accountant="pld", **rule)


def test_a_run_is_paid_by_it_and_its_statement_names_it(digits, tmp_path: Path) -> None:
    private = fedfdp.DPSGD(delta=1e-5, epsilon=30.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant=OWN)
    settings = {"algorithm": fedfdp.FedFDP(lr=1.0), "privacy": private, "rounds": 3, "out": tmp_path / "run"}
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def stop(update) -> None:
        assert update.epsilon == pytest.approx(plain(1), rel=1e-9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedfdp.train(model, digits, on_update=stop, **settings)
    summary = fedfdp.train(model, digits, resume=True, **settings).summary
    assert (summary["accountant"], summary["epsilon"]) == (OWN, pytest.approx(plain(3), rel=1e-9))
    made, page = (
        json.loads((tmp_path / "run" / "privacy.json").read_text()),
        (tmp_path / "run" / "privacy.md").read_text(),
    )
    assert (made["accountant"], made["epsilon_replace_one"]) == (OWN, None)
    assert made["epsilon"] == pytest.approx(plain(3), rel=1e-9)
    said = f"the accountant is {OWN}: its ε is its author's claim, which nothing here proves"
    assert said in made["warnings"]
    assert f"> **Warning:** {said}." in page
    with pytest.raises(SettingError, match=r"at most \d+ rounds fit epsilon = 30"):
        fedfdp.train(model, digits, **{**settings, "rounds": 100, "out": None})
    open_sigma = fedfdp.DPSGD(30.0, sigma=None, q=0.2, accountant=OWN)
    solved = fedfdp.train(model, digits, **{**settings, "privacy": open_sigma, "out": None})
    assert solved.summary["epsilon"] <= 30.0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("own_accountant:Missing", "cannot be imported"),
        ("no_such_module:X", "cannot be imported"),
        ("own_accountant:find", "not a class derived from fedfdp.privacy.Accountant"),
        ("own_accountant:Derived", "derive from fedfdp.privacy.Accountant itself"),
        ("own_accountant:Unsound", "is a guess: it only displays and compares"),
        ("own_accountant:Unfinished", "cannot be made without arguments: .*abstract.*price"),
        ("pdl", "did you mean 'pld'"),
    ],
)
def test_what_is_none_is_refused_when_it_is_named(name: str, wrong: str) -> None:
    with pytest.raises(SettingError, match=wrong) as error:
        fedfdp.DPSGD(accountant=name)
    assert error.value.setting == "privacy.accountant"


def test_a_number_that_cannot_be_an_epsilon_is_refused() -> None:
    with pytest.raises(SettingError, match=r"accountant = 'Broken': gives ε = nan"):
        epsilon([STEP], 1e-5, accountant="own_accountant:Broken")
