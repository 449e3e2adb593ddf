"""The accountants against the reference values, against dp-accounting used directly, and against Opacus."""

import math
import random

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting import ACCOUNTANTS, Event, base, delta_warning, epsilon, find, max_count
from fedfdp.privacy.accounting import pld as distributions
from fedfdp.privacy.accounting.events import bucket, history_of
from fedfdp.privacy.accounting.filter import RenyiFilter
from fedfdp.privacy.accounting.pld import PLD, gaussian_epsilon
from fedfdp.privacy.accounting.rdp import RDP
from fedfdp.privacy.accounting.renyi import ORDERS, REFERENCE_ORDERS, conversion_cost
from fedfdp.privacy.dpsgd import DPSGD
from support import dp_event

ROUND = Event(0.05, (2.0, 5.0))


def test_effective_sigma_is_the_parallel_sum() -> None:
    assert ROUND.sigma_effective == pytest.approx(1 / math.sqrt(1 / 4 + 1 / 25), rel=1e-15)
    assert Event(0.1, (3.0,)).sigma_effective == pytest.approx(3.0, rel=1e-15)
    assert Event(0.1, (2.0, 5.0, 7.0)).sigma_effective == Event(0.1, (7.0, 2.0, 5.0)).sigma_effective


@pytest.mark.parametrize(
    ("sigma", "budget", "model_only", "paper", "rdp", "pld"),
    [
        (2.0, 3.52, 776, 683, 647, 763),
        (1.0, 2.0, 6, 5, 4, 17),
        (1.5, 2.0, 114, 108, 97, 126),
        (2.0, 2.0, 267, 237, 219, 265),
        (2.5, 2.0, 463, 379, 354, 422),
        (3.0, 2.0, 702, 525, 495, 584),
    ],
)
def test_reference_rounds(sigma: float, budget: float, model_only: int, paper: int, rdp: int, pld: int) -> None:
    step = [Event(0.05, (sigma, 5.0))]
    assert max_count([Event(0.05, (sigma,))], budget, 1e-5, accountant="rdp") == model_only
    assert max_count(step, budget, 1e-5, accountant="paper") == paper
    assert max_count(step, budget, 1e-5, accountant="rdp") == rdp
    assert max_count(step, budget, 1e-5, accountant="pld") == pld


def test_round_search_returns_the_affordable_side() -> None:
    """The authors' search returns the over-budget side, and their loop runs one round more."""
    for accountant in ("pld", "rdp", "paper"):
        rounds = max_count([ROUND], 3.52, 1e-5, accountant=accountant)
        assert epsilon([Event(0.05, (2.0, 5.0), rounds)], 1e-5, accountant=accountant) <= 3.52
        assert epsilon([Event(0.05, (2.0, 5.0), rounds + 1)], 1e-5, accountant=accountant) > 3.52


def test_delta_of_ten_e_minus_5_is_not_1e_minus_5() -> None:
    """The authors write 10e-5: ten times the δ that the paper states, and rounds that it does not allow."""
    assert max_count([ROUND], 3.52, 10e-5, accountant="rdp") > 647
    assert epsilon([Event(0.05, (2.0, 5.0), 776)], 1e-5, accountant="rdp") > 3.52


def test_unpaid_loss_uploads() -> None:
    """776 rounds spend 3.52 without the loss; with it, at the authors' default σ_l = 1, 11 to 14."""
    assert epsilon([Event(0.05, (2.0,), 776)], 1e-5, accountant="rdp") <= 3.52
    assert 11 < epsilon([Event(0.05, (2.0, 1.0), 776)], 1e-5, accountant="pld") < 14


def test_a_known_batch_would_cost_173() -> None:
    assert epsilon([Event(1.0, (2.0, 5.0), 763)], 1e-5) == pytest.approx(173, abs=0.5)


def test_without_sampling_it_is_the_analytic_gaussian() -> None:
    events = [Event(1.0, (4.0,), 3), Event(1.0, (2.0, 9.0), 5)]
    mu = math.sqrt(3 / 16 + 5 * (1 / 4 + 1 / 81))  # Gaussian mechanisms compose to one
    eps = epsilon(events, 1e-5)
    delta = norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert delta <= 1e-5


def random_events(rng: random.Random, kinds: int) -> list[Event]:
    return [
        Event(
            rng.uniform(0.005, 0.2),
            tuple(rng.uniform(1.0, 6.0) for _ in range(rng.randint(1, 3))),
            rng.randint(1, 120),
        )
        for _ in range(kinds)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_dp_accounting_used_directly(seed: int) -> None:
    events = random_events(random.Random(seed), kinds=seed % 3 + 1)
    pld, rdp = PLDAccountant(), RdpAccountant(ORDERS)
    for event in events:
        gaussians = [dp_accounting.GaussianDpEvent(sigma) for sigma in event.sigmas]
        joint = dp_accounting.PoissonSampledDpEvent(event.q, dp_accounting.ComposedDpEvent(gaussians))
        rdp.compose(joint, event.count)
        pld.compose(dp_event(event))
    assert epsilon(events, 1e-5, accountant="pld") == pytest.approx(pld.get_epsilon(1e-5), rel=1e-6)
    assert epsilon(events, 1e-5, accountant="rdp") == pytest.approx(rdp.get_epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_opacus(seed: int) -> None:
    from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent

    events = random_events(random.Random(100 + seed), kinds=2)
    orders = list(ORDERS)
    total = sum(
        np.array(compute_rdp(q=e.q, noise_multiplier=e.sigma_effective, steps=e.count, orders=orders)) for e in events
    )
    expected, _ = get_privacy_spent(orders=orders, rdp=total, delta=1e-5)
    assert epsilon(events, 1e-5, accountant="rdp") == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_pld_is_tighter_than_rdp_and_joint_costs_more_than_each_part(adjacency: str) -> None:
    costs = {
        (name, accountant): epsilon([Event(0.05, sigmas, 200)], 1e-5, accountant=accountant, adjacency=adjacency)
        for name, sigmas in {"joint": (2.0, 5.0), "model": (2.0,), "loss": (5.0,)}.items()
        for accountant in ("pld", "rdp")
    }
    for accountant in ("pld", "rdp"):
        assert costs["joint", accountant] > costs["model", accountant] > costs["loss", accountant]
    for name in ("joint", "model", "loss"):
        assert costs[name, "pld"] < costs[name, "rdp"]


def test_the_papers_sum_of_curves_under_counts() -> None:
    for sigma in (1.0, 2.0, 3.0):
        events = [Event(0.05, (sigma, 5.0), 300)]
        assert epsilon(events, 1e-5, accountant="paper") < epsilon(events, 1e-5, accountant="rdp")


def test_replace_one() -> None:
    events = [Event(0.05, (2.0, 5.0), 763)]
    assert epsilon(events, 1e-5, adjacency="replace-one") == pytest.approx(6.98, abs=0.005)
    # Group privacy of two, on the zero-out curve: an independent upper bound on both replace-one numbers' truth.
    e = 3.52
    for _ in range(8):
        e = epsilon(events, 1e-5 / (1 + math.exp(e)))
    assert 2 * e > epsilon(events, 1e-5, adjacency="replace-one")
    # Without sampling, replacing is a Gaussian of twice the sensitivity, for the bound on Rényi orders too.
    single = epsilon([Event(1.0, (4.0,))], 1e-5, accountant="rdp", adjacency="replace-one")
    assert single >= epsilon([Event(1.0, (2.0,))], 1e-5, accountant="pld")


def test_monotone_in_everything() -> None:
    def cost(q: float = 0.05, sigma: float = 2.0, count: int = 100, delta: float = 1e-5) -> tuple[float, float]:
        events = [Event(q, (sigma, 5.0), count)]
        return epsilon(events, delta), epsilon(events, delta, accountant="rdp")

    for cheaper, dearer in [
        (cost(), cost(q=0.06)),
        (cost(), cost(sigma=1.9)),
        (cost(), cost(count=101)),
        (cost(), cost(delta=9e-6)),
    ]:
        assert cheaper[0] < dearer[0]
        assert cheaper[1] < dearer[1]


def test_order_and_grouping_do_not_matter() -> None:
    a, b = Event(0.05, (2.0, 5.0), 30), Event(0.02, (1.5,), 10)
    split = [Event(0.05, (5.0, 2.0), 10), b, Event(0.05, (2.0, 5.0), 20)]
    assert epsilon([a, b], 1e-5) == epsilon(split, 1e-5)
    assert epsilon([], 1e-5) == 0


def test_bucketing_never_makes_a_history_cheaper() -> None:
    rng = random.Random(0)
    history = history_of(Event(rng.uniform(0.01, 0.1), (rng.uniform(1, 3),)) for _ in range(20))
    small = bucket(history, 6)
    assert len(small) <= 6
    assert sum(count for _, _, count in small) == 20
    assert max(q for q, _, _ in small) >= max(q for q, _, _ in history)
    assert min(sigma for _, sigma, _ in small) <= min(sigma for _, sigma, _ in history)
    assert RDP().epsilon(small, 1e-5) >= RDP().epsilon(history, 1e-5)


@pytest.mark.parametrize("method", ["pld", "rdp"])
def test_every_round_is_an_upper_bound_and_the_end_is_exact(method: str) -> None:
    before = 0.0
    for count in (1, 2, 100, 257, 299, 763, 1000):
        events = [Event(0.05, (2.0, 5.0), count)]
        shown, exact = find(method).upper_bound(history_of(events), 1e-5), epsilon(events, 1e-5, accountant=method)
        assert before < exact <= shown <= exact * 1.005
        before = shown


def test_ten_thousand_rounds_need_a_thousand_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(distributions, "pld_epsilon", lambda history, *rest: asked.append(history) or 1.0)
    for count in range(1, 10_001):
        PLD().upper_bound(((0.031, 2.7, count),), 1.1e-5)
    assert 0 < len(asked) < 1000
    base._priced.cache_clear()


def test_filter_at_its_expected_event_allows_what_rdp_allows() -> None:
    kept = RenyiFilter().expecting(history_of([ROUND]), 3.52, 1e-5)
    assert len(kept.orders) == 1
    used = [kept.epsilon(history_of([Event(0.05, (2.0, 5.0), count)]), 1e-5) for count in (647, 648)]
    assert used[0] <= 3.52 < used[1]
    assert kept.epsilon(history_of([Event(0.05, (2.0, 5.0), 647), Event(1e-6, (50.0,))]), 1e-5) <= 3.52
    assert kept.claim(history_of([ROUND]), 3.52, 1e-5) == 3.52
    assert kept.claim(history_of([ROUND]), 3.52, 1e-5, "replace-one") == math.inf
    assert kept.claim((), 3.52, 1e-5) == 0


def test_filter_with_several_orders_pays_for_the_choice() -> None:
    several = RenyiFilter((6, 7, 8, 9, 10))
    count = several.max_count((), history_of([ROUND]), 3.52, 1e-5)
    assert count < 647
    # By hand: some order α with n·R(α) within ε minus the conversion at δ/5, and none for n + 1.
    rdp = RdpAccountant([6, 7, 8, 9, 10])
    rdp.compose(dp_event(ROUND))
    alphas = np.arange(6, 11)
    room = 3.52 - (np.log((alphas - 1) / alphas) - (math.log(2e-6) + np.log(alphas)) / (alphas - 1))
    assert count == math.floor(max(room / rdp.rdp))


def test_filter_needs_known_orders() -> None:
    with pytest.raises(SettingError, match="orders"):
        RenyiFilter(())
    with pytest.raises(SettingError, match="orders"):
        RenyiFilter((65,))


def test_a_filter_that_knows_nothing_of_its_rounds_pays_for_all_orders() -> None:
    unknown, step = RenyiFilter(), history_of([ROUND])
    assert 400 < unknown.max_count((), step, 3.52, 1e-5) < 647
    assert unknown.epsilon(step, 1e-5) > RDP().epsilon(step, 1e-5)


def test_conversion_is_the_printed_one() -> None:
    assert conversion_cost([8], 1e-5)[0] == pytest.approx(math.log(7 / 8) - (math.log(1e-5) + math.log(8)) / 7)


@pytest.mark.parametrize("count", [1, 10**6])
@pytest.mark.parametrize(("q", "sigma"), [(1.0, 0.5), (1.0, 1e3), (0.5, 0.1), (1e-6, 1e3), (1e-3, 1.0)])
@pytest.mark.parametrize("delta", [1e-5, 1e-20])
def test_extremes_come_out_finite_and_not_free(q: float, sigma: float, count: int, delta: float) -> None:
    pld = epsilon([Event(q, (sigma,), count)], delta)
    assert math.isfinite(pld)
    assert pld <= epsilon([Event(q, (sigma,), count)], delta, accountant="rdp")
    if count > 1:
        assert pld > epsilon([Event(q, (sigma,))], delta)


def test_rounding_cannot_make_an_event_free() -> None:
    """q²/σ² is far below floating point here; a curve of zero would allow any number of rounds."""
    assert max_count([Event(1e-8, (1e3,))], 1e-6, 1e-12, accountant="rdp") < 10**15


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"q": 0.0, "sigmas": (1.0,)}, "q"),
        ({"q": 1.5, "sigmas": (1.0,)}, "q"),
        ({"q": math.nan, "sigmas": (1.0,)}, "q"),
        ({"q": 0.1, "sigmas": (0.0,)}, "sigma"),
        ({"q": 0.1, "sigmas": (1.0, -2.0)}, "sigma"),
        ({"q": 0.1, "sigmas": (math.inf,)}, "sigma"),
        ({"q": 0.1, "sigmas": (math.nan,)}, "sigma"),
        ({"q": 0.1, "sigmas": ()}, "sigmas"),
        ({"q": 0.1, "sigmas": (1.0,), "count": 0}, "count"),
        ({"q": 0.1, "sigmas": (1.0,), "count": 1.5}, "count"),
    ],
)
def test_no_event_without_privacy(arguments: dict, setting: str) -> None:
    with pytest.raises(SettingError) as error:
        Event(**arguments)
    assert error.value.setting == setting


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(SettingError, match="delta"):
        epsilon([ROUND], delta)


def test_paper_never_enforces() -> None:
    with pytest.raises(SettingError, match=r"under-counts.*; use pld or rdp"):
        find("paper", enforces=True)
    with pytest.raises(SettingError, match="under-counts"):
        DPSGD(accountant="paper")
    with pytest.raises(SettingError, match=r"a filter claims its whole budget, .*; use pld or rdp"):
        DPSGD(accountant="filter")
    with pytest.raises(SettingError, match="a filter claims its whole budget"):
        epsilon([ROUND], 1e-5, accountant="filter")
    assert {name for name, known in ACCOUNTANTS.items() if known.unsound} == {"paper"}
    assert {name for name, known in ACCOUNTANTS.items() if known.adaptive} == {"filter"}
    with pytest.raises(SettingError, match="replace-one"):
        epsilon([ROUND], 1e-5, accountant="paper", adjacency="replace-one")
    with pytest.raises(SettingError, match="did you mean 'pld'"):
        epsilon([ROUND], 1e-5, accountant="plt")
    with pytest.raises(SettingError, match="adjacency"):
        epsilon([ROUND], 1e-5, adjacency="add-one")


def test_delta_warning_says_why() -> None:
    assert delta_warning(1e-5, 60_000) is None
    assert "1/n" in (delta_warning(1e-3, 1000) or "")
    assert delta_warning(0.00101, 1000) is not None
    assert delta_warning(0.00099, 1000) is None


def test_reference_orders() -> None:
    assert REFERENCE_ORDERS == (*range(2, 64), 128, 256, 512)  # noqa: SIM300
    assert set(REFERENCE_ORDERS) <= set(ORDERS)


@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0, 20.0, 300.0])
@pytest.mark.parametrize(("adjacency", "distance"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_every_record_in_every_batch_has_a_formula(sigma, adjacency, distance):
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) with μ = distance/σ (Balle and Wang 2018)."""
    found = gaussian_epsilon(sigma, 1e-5, adjacency)
    mu = distance / sigma

    def delta(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)

    assert delta(found) <= 1e-5
    assert delta(found * (1 - 1e-5)) > 1e-5
    many = [Event(1.0, (sigma * 10,), 100)]  # a hundred of ten times the noise are the same
    assert epsilon(many, 1e-5, adjacency=adjacency) == pytest.approx(found, rel=1e-5)
