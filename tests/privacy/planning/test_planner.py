"""Every solver against the definition: the value fits, and the next one towards the edge does not."""

import math
from dataclasses import replace

import pytest

from fedfdp.core.errors import BudgetError, SettingError
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.accounting.search import approach, largest, round_away
from fedfdp.privacy.planning.planner import Plan, plan

DEFAULT = {"epsilon": 3.52, "q": 0.05, "sigma": 2.0, "sigma_loss": 5.0, "rounds": 763}


def without(unknown: str, **changes: float) -> dict:
    return {**DEFAULT, **changes, unknown: None}


def test_rounds_of_the_default_setting() -> None:
    found = plan(epsilon=3.52, q=0.05, sigma=2.0, sigma_loss=5.0)
    assert (found.rounds, found.solved_for, found.budget) == (763, "rounds", 3.52)
    assert found.epsilon == pytest.approx(3.519, abs=1e-3)
    assert found.epsilon_replace_one == pytest.approx(6.98, abs=0.01)
    assert found.sigma_effective == pytest.approx((1 / 4 + 1 / 25) ** -0.5)
    assert found.events() == (Event(0.05, (2.0, 5.0), 763),)


@pytest.mark.parametrize("accountant", ["rdp", "paper"])
def test_rounds_of_the_other_accountants(accountant: str) -> None:
    found = plan(**without("rounds"), accountant=accountant)
    assert found.rounds == {"rdp": 647, "paper": 683}[accountant]
    assert (found.epsilon_replace_one is None) == (accountant == "paper")


def test_epsilon_is_what_the_events_cost() -> None:
    found = plan(**without("epsilon"))
    assert found.epsilon == epsilon([Event(0.05, (2.0, 5.0), 763)], 1e-5)
    assert found.budget is None


def cost(found: Plan, **changes: float) -> float:
    return replace(found, **changes).cost()


@pytest.mark.parametrize(
    ("unknown", "closer", "accountant"),
    [
        ("sigma", 0.9998, "pld"),
        pytest.param("delta", 0.999, "pld", marks=pytest.mark.slow),
        ("sigma", 0.9998, "rdp"),
        ("sigma_loss", 0.998, "rdp"),
        ("q", 1.0002, "rdp"),
        ("delta", 0.999, "rdp"),
    ],
)
def test_real_solutions_lie_just_inside_the_budget(unknown: str, closer: float, accountant: str) -> None:
    found = plan(**without(unknown), solve=unknown, accountant=accountant)
    value = getattr(found, unknown)
    assert found.epsilon == cost(found, **{unknown: value}) <= 3.52
    assert cost(found, **{unknown: value * closer}) > 3.52


def test_a_real_solution_is_written_in_five_digits() -> None:
    sigma = plan(**without("sigma"), accountant="rdp").sigma
    assert float(f"{sigma:.5g}") == sigma
    assert round_away(1.23456789, upward=True) == 1.2346
    assert round_away(1.23456789, upward=False) == 1.2345
    assert round_away(0.000123456, upward=False) == 0.00012345


def test_local_steps_pay_for_every_batch() -> None:
    one = plan(**without("epsilon", rounds=100))
    four = plan(**without("epsilon", rounds=100), local_steps=4)
    assert four.events() == (Event(0.05, (2.0,), 300), Event(0.05, (2.0, 5.0), 100))
    assert four.epsilon == epsilon(four.events(), 1e-5) > one.epsilon


def test_local_steps_are_the_most_that_fit() -> None:
    found = plan(**without("local_steps", rounds=100), solve="local_steps")
    more = plan(**without("epsilon", rounds=100), local_steps=found.local_steps + 1)
    assert found.local_steps > 1
    assert found.epsilon <= 3.52 < more.epsilon


def test_count_is_one_more_release_of_the_same_batch() -> None:
    found = plan(**without("epsilon", rounds=10), sigma_count=10.0)
    assert found.events() == (Event(0.05, (2.0, 5.0, 10.0), 10),)
    assert found.sigma_effective == pytest.approx((1 / 4 + 1 / 25 + 1 / 100) ** -0.5)


def test_everything_given_is_checked() -> None:
    assert plan(**DEFAULT).solved_for is None
    with pytest.raises(BudgetError, match=r"epsilon = 3\.52: 764 rounds"):
        plan(**{**DEFAULT, "rounds": 764})


def test_a_loss_that_is_not_released_costs_nothing() -> None:
    assert plan(epsilon=3.52, q=0.05, sigma=2.0, accountant="rdp").rounds == 776


def test_too_small_a_budget_names_what_one_round_takes() -> None:
    with pytest.raises(BudgetError, match=r"epsilon = 0\.1: one round at sigma = 2 already cost") as error:
        plan(epsilon=0.1, q=0.05, sigma=2.0)
    needed = float(str(error.value).split("sigma of at least ")[1].split(",")[0])
    assert plan(q=0.05, sigma=needed, rounds=1).epsilon <= 0.1 < plan(q=0.05, sigma=needed * 0.999, rounds=1).epsilon


def test_no_sigma_is_enough() -> None:
    with pytest.raises(BudgetError, match="even sigma_loss"):
        plan(**without("sigma_loss", rounds=5000), solve="sigma_loss", accountant="rdp")


def test_a_tiny_budget_is_planned_for() -> None:
    found = plan(epsilon=1e-3, q=0.05, rounds=100)
    assert 100 < found.sigma < 1e5
    assert found.epsilon <= 1e-3


def test_a_rate_of_one_is_found_where_everything_fits() -> None:
    assert plan(epsilon=10.0, sigma=30.0, rounds=10).q == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 1.0, "q": 0.05}, "sigma = None: left out together with rounds"),
        ({"q": 0.05, "sigma": 1.0}, "epsilon = None: left out together with rounds"),
        ({**DEFAULT, "solve": "sigma"}, "cannot be given and solved for"),
        ({**DEFAULT, "solve": "sigm"}, "did you mean 'sigma'"),
        ({**DEFAULT, "accountant": "rpd"}, "did you mean 'rdp'"),
        ({**DEFAULT, "epsilon": -1.0}, "epsilon = -1.0"),
        ({**DEFAULT, "sigma": 0.0}, "sigma = 0.0"),
        ({**DEFAULT, "sigma_loss": -1.0}, "sigma_loss = -1.0"),
        ({**DEFAULT, "q": 1.01}, "q = 1.01"),
        ({**DEFAULT, "delta": 1.0}, "delta = 1.0"),
        ({**DEFAULT, "rounds": 0}, "rounds = 0"),
        ({**DEFAULT, "local_steps": 0}, "local_steps = 0"),
    ],
)
def test_what_cannot_be_planned_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(SettingError) as error:
        plan(**arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("edge", [0, 1, 2, 7, 100, 12345])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("fits", [0, 1, 90])
def test_largest_finds_the_edge(edge: int, power: float, fits: int) -> None:
    if fits <= edge:
        assert largest(lambda n: n**power, (edge + 0.5) ** power, fits=fits, most=10**6) == edge
    assert largest(lambda n: 0.0, 1.0, fits=0, most=1000) == 1000
    assert largest(lambda n: math.inf if n > edge else 0.0, 1.0, fits=0, most=10**6) == edge


@pytest.mark.parametrize("exponent", [-2.0, -0.5, 0.7, 3.0])
def test_approach_stops_within_tolerance_on_the_safe_side(exponent: float) -> None:
    safe, end = (1e4, 1e-4) if exponent < 0 else (1e-4, 1e4)
    found = approach(lambda x: x**exponent, 2.0, safe=safe, end=end, first=1.0, tolerance=1e-6)
    edge = 2.0 ** (1 / exponent)
    assert found**exponent <= 2.0
    assert found == pytest.approx(edge, rel=1e-6)
