"""Compare a plan across accountants, across other σ and rounds, and with the paper's printed numbers.

For people to look at. Nothing here enforces anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedfdp.privacy.accounting import ACCOUNTANTS, epsilon, find, max_count
from fedfdp.privacy.planning.planner import Plan, Schedule

# The paper's rounds for ε = 2 (q = 0.05, σ_l = 5, δ = 1e-5), by σ.
PAPER_ROUNDS = {1.0: 6, 1.5: 115, 2.0: 268, 2.5: 463, 3.0: 708}
PAPER_EPSILON = 2.0


@dataclass(frozen=True)
class Opinion:
    """What one accountant says of a plan."""

    accountant: str
    valid: bool  # whether its ε is an upper bound
    epsilon: float
    rounds: int | None  # within the plan's budget, where it has one


@dataclass(frozen=True)
class PaperCost:
    """The paper's printed rounds at one σ: what the model alone costs, and what is released costs."""

    sigma: float
    printed_rounds: int
    epsilon_model_only: float  # rdp, loss uploads not paid for
    epsilon_rdp: float  # everything released
    epsilon: float  # the same by pld
    rounds: int  # pld, that its ε allows


def comparable(plan: Plan) -> list[str]:
    """The accountants that can price a plan, and the plan's own."""
    return list(dict.fromkeys([*(name for name, known in ACCOUNTANTS.items() if not known.adaptive), plan.accountant]))


def opinions(plan: Plan) -> list[Opinion]:
    """What every accountant says of a plan."""
    found = []
    for name in comparable(plan):
        cost = epsilon(plan.events(), plan.delta, accountant=name)
        rounds = plan.budget and max_count(plan.round_events(), plan.budget, plan.delta, accountant=name)
        found.append(Opinion(name, not find(name).unsound, cost, int(rounds) if rounds is not None else None))
    return found


def curve(schedule: Schedule, rounds: Sequence[int]) -> list[float]:
    """ε after so many rounds, by the plan's accountant; for `pld` an upper bound within half a percent."""
    by = find(schedule.accountant, plans=True)
    points = [replace(schedule, rounds=count) for count in rounds]
    return [by.upper_bound(by.history(point.events()), point.delta) for point in points]


def spread(value: int) -> list[int]:
    """A quarter, half, once, twice and four times as many."""
    return sorted({max(1, round(value * factor)) for factor in (0.25, 0.5, 1, 2, 4)})


def trade_off(plan: Plan) -> tuple[list[int], dict[float, list[float]]]:
    """ε for other numbers of rounds (columns) and other σ (rows), all else as planned."""
    rounds = spread(plan.rounds)
    sigmas = [float(f"{plan.sigma * factor:.4g}") for factor in (0.5, 0.75, 1, 1.5, 2)]
    rows = {sigma: curve(replace(plan, sigma=sigma), rounds) for sigma in sigmas}
    rows[sigmas[2]][rounds.index(plan.rounds)] = plan.epsilon  # known exactly
    return rounds, rows


def paper_costs() -> list[PaperCost]:
    """What the paper's printed rounds cost, for each of its σ."""
    costs = []
    for sigma, printed in PAPER_ROUNDS.items():
        released = Schedule(0.05, sigma, 5.0, None, printed, 1, 1e-5, "pld")
        by_rdp = replace(released, accountant="rdp")
        alone = replace(by_rdp, sigma_loss=None)
        allowed = max_count(released.round_events(), PAPER_EPSILON, 1e-5)
        costs.append(PaperCost(sigma, printed, alone.cost(), by_rdp.cost(), released.cost(), allowed))
    return costs
