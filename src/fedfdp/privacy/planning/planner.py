"""Solves for the one of ε, δ, q, σ, σ_l, rounds and local steps that is left out, always on the affordable side.

Never returns a plan whose own ε was not computed and found within the budget.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from fedfdp.core.errors import BudgetError, SettingError, nearest
from fedfdp.privacy.accounting import Accountant, Event, find, max_count
from fedfdp.privacy.accounting import epsilon as epsilon_of
from fedfdp.privacy.accounting.events import check_count, check_delta, check_epsilon, check_rate, check_sigma, repeat
from fedfdp.privacy.accounting.search import approach, round_away

Unknown = Literal["epsilon", "delta", "q", "sigma", "sigma_loss", "rounds", "local_steps"]

PRECISION = 1e-4  # of solved σ, σ_l, q and δ, relative

# The search for a real number starts at an end where everything is affordable and never goes past the other.
_RANGE: dict[Unknown, tuple[float, float]] = {
    "sigma": (1e5, 1e-2),
    "sigma_loss": (1e5, 1e-2),
    "q": (1e-9, 1.0),
    "delta": (0.999, 1e-250),
}


@dataclass(frozen=True)
class Schedule:
    """Equal rounds: local_steps − 1 batches that release a gradient, and one of gradient, loss and count together."""

    q: float
    sigma: float
    sigma_loss: float | None  # None: not released
    sigma_count: float | None
    rounds: int
    local_steps: int
    delta: float
    accountant: str

    @property
    def sigma_effective(self) -> float:
        """Of the joint release."""
        return self.round_events()[-1].sigma_effective

    def round_events(self) -> tuple[Event, ...]:
        released = tuple(s for s in (self.sigma, self.sigma_loss, self.sigma_count) if s is not None)
        joint = Event(self.q, released)
        return (joint,) if self.local_steps == 1 else (Event(self.q, (self.sigma,), self.local_steps - 1), joint)

    def events(self) -> tuple[Event, ...]:
        return repeat(self.round_events(), self.rounds)

    def cost(self) -> float:
        return epsilon_of(self.events(), self.delta, accountant=self.accountant)


@dataclass(frozen=True)
class Plan(Schedule):
    """A schedule with what it spends. `budget` is what was allowed (None: no limit was given), `solved_for` what was
    missing (None: nothing, it was only checked)."""

    epsilon: float
    epsilon_replace_one: float | None  # None where the accountant has no such number
    budget: float | None
    solved_for: Unknown | None


def plan(
    *,
    epsilon: float | None = None,
    delta: float | None = 1e-5,
    q: float | None = None,
    sigma: float | None = None,
    sigma_loss: float | None = None,
    sigma_count: float | None = None,
    rounds: int | None = None,
    local_steps: int | None = 1,
    accountant: str = "pld",
    solve: Unknown | None = None,
) -> Plan:
    """Solves for the one value that is None. sigma_loss=None means that no loss is released, unless solve="sigma_loss".

    The largest rounds, local_steps and q, the smallest sigma, sigma_loss and delta that stay within epsilon. With
    nothing left out, checks that the plan fits. Raises BudgetError where no value does.

    >>> plan(epsilon=3.52, q=0.05, sigma=2.0, sigma_loss=5.0).rounds
    763
    """
    known = find(accountant, plans=True)
    given = {"epsilon": epsilon, "delta": delta, "q": q, "sigma": sigma, "rounds": rounds, "local_steps": local_steps}
    unknown = _find_unknown({**given, "sigma_loss": sigma_loss}, solve)
    _check(epsilon, delta, q, (sigma, sigma_loss, sigma_count), rounds, local_steps)
    start = Schedule(
        q=_RANGE["q"][0] if q is None else q,
        sigma=_RANGE["sigma"][0] if sigma is None else sigma,
        sigma_loss=sigma_loss,
        sigma_count=sigma_count,
        rounds=1 if rounds is None else rounds,
        local_steps=1 if local_steps is None else local_steps,
        delta=_RANGE["delta"][0] if delta is None else delta,
        accountant=accountant,
    )
    solved = start if epsilon is None or unknown is None else _solve(start, unknown, epsilon)
    spent = solved.cost()
    if epsilon is not None and spent > epsilon:
        raise BudgetError(
            f"epsilon = {epsilon:g}: {solved.rounds} rounds at sigma = {solved.sigma:g} cost {spent:.4g}; "
            f"leave out epsilon, rounds or sigma to have it solved"
        )
    other = known.epsilon(known.history(solved.events()), solved.delta, "replace-one") if known.replace_one else None
    return Plan(**vars(solved), epsilon=spent, epsilon_replace_one=other, budget=epsilon, solved_for=unknown)


def _find_unknown(given: dict[str, float | int | None], solve: Unknown | None) -> Unknown | None:
    names: tuple[Unknown, ...] = get_args(Unknown)
    if solve is not None and solve not in names:
        raise SettingError("solve", solve, nearest(solve, names))
    if solve is not None and given[solve] is not None:
        raise SettingError(solve, given[solve], f"cannot be given and solved for (solve = {solve!r})", "leave one out")
    missing = [name for name in names if given[name] is None and (name != "sigma_loss" or solve == name)]
    if len(missing) > 1:
        raise SettingError(missing[0], None, f"left out together with {', '.join(missing[1:])}", "leave out only one")
    return missing[0] if missing else None


def _check(
    epsilon: float | None,
    delta: float | None,
    q: float | None,
    sigmas: tuple[float | None, float | None, float | None],
    rounds: int | None,
    local_steps: int | None,
) -> None:
    if epsilon is not None:
        check_epsilon(epsilon)
    if delta is not None:
        check_delta(delta)
    if q is not None:
        check_rate(q)
    for name, sigma in zip(("sigma", "sigma_loss", "sigma_count"), sigmas, strict=True):
        if sigma is not None:
            check_sigma(name, sigma)
    for name, count in (("rounds", rounds), ("local_steps", local_steps)):
        if count is not None:
            check_count(name, count)


def _solve(start: Schedule, unknown: Unknown, budget: float) -> Schedule:
    if unknown == "rounds":
        rounds = max_count(start.round_events(), budget, start.delta, accountant=start.accountant)
        if not rounds:
            raise _too_small(start, budget)
        return replace(start, rounds=rounds)
    if unknown == "local_steps":
        if start.cost() > budget:
            raise _too_small(start, budget)
        step = (Event(start.q, (start.sigma,), start.rounds),)
        more = max_count(step, budget, start.delta, accountant=start.accountant, after=start.events())
        return replace(start, local_steps=1 + more)
    value = _solve_real(start, unknown, budget)
    if value is None:
        safe = _RANGE[unknown][0]
        raise BudgetError(
            f"epsilon = {budget:g}: even {unknown} = {safe:g} costs {_put(start, unknown, safe).cost():.4g} with "
            f"{start.rounds} rounds; raise epsilon or ask for fewer rounds"
        )
    return _put(start, unknown, value)


def _too_small(start: Schedule, budget: float) -> BudgetError:
    needed = _solve_real(start, "sigma", budget)
    sigma = f"sigma of at least {needed:g}, or " if needed else ""
    what = "one round" if start.rounds == 1 else f"{start.rounds} rounds"
    return BudgetError(
        f"epsilon = {budget:g}: {what} at sigma = {start.sigma:g} already cost {start.cost():.4g}; "
        f"it takes {sigma}epsilon of at least that"
    )


def _put(schedule: Schedule, unknown: Unknown, value: float) -> Schedule:
    match unknown:
        case "sigma":
            return replace(schedule, sigma=value)
        case "sigma_loss":
            return replace(schedule, sigma_loss=value)
        case "q":
            return replace(schedule, q=value)
        case _:
            return replace(schedule, delta=value)


def _solve_real(start: Schedule, unknown: Unknown, budget: float) -> float | None:
    """The affordable value nearest the unaffordable end of its range, rounded to five digits away from that end.

    Cheaper bounds go first and come near it: each is an upper bound of the next, so what they afford is affordable.
    """
    safe, end = _RANGE[unknown]
    if _put(start, unknown, safe).cost() > budget:
        return None
    first = math.sqrt(safe * end)
    for cost, tolerance in _costs(start, unknown):
        if safe != end and cost(safe) <= budget:
            safe = approach(cost, budget, safe=safe, end=end, first=first, tolerance=tolerance)
            first = safe * (end / safe) ** min(1.0, 2 * tolerance / abs(math.log(end / safe))) if safe != end else end
    return safe if safe == end else round_away(safe, upward=end < safe)


def _costs(start: Schedule, unknown: Unknown) -> list[tuple[Callable[[float], float], float]]:
    """Ways to price a value of the unknown, from quick to exact, with how near the boundary each should come."""

    def priced(accountant: Accountant) -> Callable[[float], float]:
        def cost(value: float) -> float:
            tried = _put(start, unknown, value)
            return accountant.epsilon(accountant.history(tried.events()), tried.delta)

        return cost

    exact = find(start.accountant, plans=True)
    return [(priced(by), tolerance) for by, tolerance in (*exact.coarser, (exact, PRECISION))]
