"""ε, σ and rounds of a run: the one that is left out is solved from the other two, rounded so that it is affordable."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fedfdp.algorithms.base import Algorithm
from fedfdp.core.errors import BudgetError, SettingError
from fedfdp.core.settings import left_out
from fedfdp.privacy.accounting import Accountant, Event, find, max_count
from fedfdp.privacy.accounting import epsilon as epsilon_of
from fedfdp.privacy.accounting.events import effective_sigma, repeat
from fedfdp.privacy.accounting.search import approach, round_away
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.planning.planner import PRECISION, plan

LOSS_NOISE = 5.0  # σ_l over σ where it is left out: the loss then adds 2 % to the price of the gradient
USED_UP = 0.9  # the part of a budget above which nothing is said of the rest
_MOST_NOISE, _LEAST_NOISE = 1e5, 1e-2  # the range in which σ is searched


def resolve_privacy(
    privacy: DPSGD | None,
    algorithm: Algorithm,
    rounds: int | None,
    *,
    share: float = 1.0,
    before: Sequence[Event] = (),
) -> tuple[DPSGD | None, int]:
    """The settings with nothing left open, and the number of rounds; a contradiction between all three is refused.

    A client that is asked in a `share` of the rounds only can afford more of them; its ledger keeps the budget. What
    every client releases `before` training is paid from the same budget.
    """
    if privacy is None:
        if rounds is None:
            raise SettingError("rounds", None, "needed without privacy: nothing else ends the run", "set rounds = 100")
        return None, rounds
    missing = [name for name in ("epsilon", "sigma") if getattr(privacy, name) is None] + ["rounds"] * (rounds is None)
    if len(missing) > 1:
        allowed = f"{missing[1]} is left out too, and only one of them can be solved for"
        raise SettingError(f"privacy.{missing[0]}", None, allowed, "set one of them")
    paid = None if rounds is None else math.ceil(rounds * share)  # rounds that a client takes part in
    if privacy.sigma is None:
        assert paid is not None
        privacy = _with_sigma(privacy, _smallest_sigma(privacy, algorithm, paid, before))
    privacy = _with_sigma(privacy, privacy.noise)
    step = algorithm.events(None, privacy)
    if paid is not None and rounds is not None:
        cost = epsilon_of([*before, *repeat(step, paid)], privacy.delta, accountant=privacy.accountant)
        if privacy.epsilon is None:
            return replace(privacy, epsilon=cost), rounds
        if cost <= privacy.epsilon:
            return privacy, rounds
    assert privacy.epsilon is not None
    affordable = max_count(step, privacy.epsilon, privacy.delta, accountant=privacy.accountant, after=before)
    if affordable < 1:
        cost = epsilon_of([*before, *step], privacy.delta, accountant=privacy.accountant)
        raise BudgetError(
            f"privacy.epsilon = {privacy.epsilon:g}: a single round with sigma = {privacy.noise:g}, q = {privacy.q:g} "
            f"costs {cost:.4g}; raise epsilon or sigma, or lower q"
        )
    affordable = math.floor(affordable / share)
    if rounds is not None and rounds > affordable:
        allowed = f"at most {affordable} rounds fit epsilon = {privacy.epsilon:g} with sigma = {privacy.noise:g}"
        raise SettingError("rounds", rounds, allowed, "lower rounds, raise epsilon or sigma, or leave one of them out")
    return privacy, rounds or affordable


def _smallest_sigma(privacy: DPSGD, algorithm: Algorithm, rounds: int, before: Sequence[Event]) -> float:
    """The smallest σ of a method whose round is K − 1 gradients and one joint event."""
    if before or left_out(privacy, "sigma_loss"):
        return _sigma_after(before, privacy, algorithm, rounds)
    events = algorithm.events(None, replace(privacy, sigma=1.0))
    beside = events[-1].sigmas[1:]  # what the joint event releases beside the gradient
    return plan(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        q=privacy.q,
        sigma_loss=effective_sigma(beside) if beside else None,
        rounds=rounds,
        local_steps=sum(event.count for event in events),
        accountant=privacy.accountant,
    ).sigma


def _sigma_after(before: Sequence[Event], privacy: DPSGD, algorithm: Algorithm, rounds: int) -> float:
    """The smallest σ whose rounds fit the budget together with what was released before them."""
    assert privacy.epsilon is not None

    def cost(sigma: float, accountant: Accountant) -> float:
        rest = repeat(algorithm.events(None, _with_sigma(privacy, sigma)), rounds)
        return accountant.epsilon(accountant.history([*before, *rest]), privacy.delta)

    exact = find(privacy.accountant, "privacy.accountant", plans=True)
    if cost(_MOST_NOISE, exact) > privacy.epsilon:
        spent = epsilon_of(before, privacy.delta, accountant=privacy.accountant) if before else 0.0
        ranges = f"estimating ranges takes {spent:.4g} of it, and " if before else ""
        raise BudgetError(
            f"privacy.epsilon = {privacy.epsilon:g}: {ranges}{rounds} rounds do not fit"
            + (" into the rest; raise data.estimate.sigma or epsilon" if before else "; raise epsilon")
            + ", or lower rounds"
        )
    found, first = _MOST_NOISE, 2.0
    # First with the quickest accountant: it never under-estimates ε, so a σ that fits by it fits exactly.
    for accountant, tolerance in (exact.quickest, 0.01), (exact, PRECISION):
        price = partial(cost, accountant=accountant)
        if price(found) <= privacy.epsilon:
            found = approach(price, privacy.epsilon, safe=found, end=_LEAST_NOISE, first=first, tolerance=tolerance)
            first = 0.95 * found
    return round_away(found, upward=True)


def _with_sigma(privacy: DPSGD, sigma: float) -> DPSGD:
    """With this σ, and with σ_l in proportion to it where that is left out."""
    beside = LOSS_NOISE * sigma if left_out(privacy, "sigma_loss") else privacy.sigma_loss
    return replace(privacy, sigma=sigma, sigma_loss=beside)


def rate_for(privacy: DPSGD, algorithm: Algorithm, rounds: int) -> float:
    """The largest q up to the given one with which so many rounds fit ε at the given σ."""
    privacy = _with_sigma(privacy, privacy.noise)
    assert privacy.epsilon is not None
    by = find(privacy.accountant, "privacy.accountant", plans=True).quickest

    def cost(q: float) -> float:
        events = repeat(algorithm.events(None, replace(privacy, q=q)), rounds)
        return by.epsilon(by.history(events), privacy.delta)

    if cost(privacy.q) <= privacy.epsilon:
        return privacy.q
    least = 1e-4
    if cost(least) > privacy.epsilon:
        return least
    found = approach(
        cost, privacy.epsilon, safe=least, end=privacy.q, first=math.sqrt(least * privacy.q), tolerance=0.02
    )
    return round_away(found, upward=False)


def part_used(
    privacy: DPSGD, algorithm: Algorithm, rounds: int, *, share: float = 1.0, before: Sequence[Event] = ()
) -> float:
    """The part of ε that these rounds cost."""
    assert privacy.epsilon is not None
    spent = [*before, *repeat(algorithm.events(None, privacy), math.ceil(rounds * share))]
    return epsilon_of(spent, privacy.delta, accountant=privacy.accountant) / privacy.epsilon


def unspent(
    privacy: DPSGD, algorithm: Algorithm, rounds: int, *, share: float = 1.0, before: Sequence[Event] = ()
) -> str:
    """What would use a budget that these rounds leave a good part of; empty if they use it up."""
    assert privacy.epsilon is not None
    if algorithm.adaptive:
        return ""
    paid, step = math.ceil(rounds * share), algorithm.events(None, privacy)
    used = part_used(privacy, algorithm, rounds, share=share, before=before)
    if used > USED_UP:
        return ""
    most = max_count(step, privacy.epsilon, privacy.delta, accountant=privacy.accountant, after=before)
    least = _smallest_sigma(privacy, algorithm, paid, before)
    return (
        f"{used:.0%} of epsilon = {privacy.epsilon:g} used: {most / paid:.2g} times the rounds, or sigma = {least:.4g} "
        f"in place of {privacy.noise:.4g}, would use it; leave out sigma to have it solved"
    )
