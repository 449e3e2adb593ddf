"""The audit's statistics against closed forms and simulated truth, and its games in small."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats
from torch import nn

from fedfdp.audit import FAULTS, ReleaseGame, TrainingGame, Trials
from fedfdp.audit.faults import Charged, OnePerson, Resumed, TwoRuns
from fedfdp.audit.onerun import epsilon_lower, guess, p_value, planned_share
from fedfdp.audit.separation import (
    GaussianPrecision,
    PureEpsilon,
    ceiling,
    lower_limit,
    separate,
    upper_limit,
)
from fedfdp.core.errors import SettingError
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure

# Rates and what follows from them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (17, 5000)])
def test_limits_are_clopper_pearson(hits, trials):
    exact = stats.binomtest(hits, trials).proportion_ci(0.99, method="exact")  # two-sided: half a percent each
    assert float(lower_limit(np.array(hits), trials, 0.005)) == pytest.approx(exact.low, abs=1e-12)
    assert float(upper_limit(np.array(hits), trials, 0.005)) == pytest.approx(exact.high, rel=1e-9)


def test_epsilon_by_the_definition():
    least, most = np.array([0.5, 0.3, 0.05, 1.0]), np.array([0.1, 0.3, 0.3, 0.05])
    assert PureEpsilon(0.1)(least, most) == pytest.approx([math.log(4), 0.0, 0.0, math.log(18)])


@pytest.mark.parametrize("q", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_precision_of_exact_rates_is_the_true_one(q, sigma):
    cuts = np.array([-1.0, 0.3, 1.5])  # of the noise's deviation
    wrong = stats.norm.sf(cuts)
    right = (1 - q) * wrong + q * stats.norm.sf(cuts - 1 / sigma)
    assert GaussianPrecision(q)(right, wrong) == pytest.approx(np.full(3, 1 / sigma), rel=1e-9)


def test_precision_at_its_ends():
    # Rarer than chance: no leak. More often right than q allows with any σ: 0.2 > 0.9·0.05 + 0.1.
    found = GaussianPrecision(0.1)(np.array([0.01, 0.05, 0.2]), np.array([0.05, 0.05, 0.05]))
    assert found.tolist() == [0.0, 0.0, math.inf]


def test_ceiling_is_what_perfect_separation_shows():
    n = 4000
    worlds = {"s": np.ones(n)}, {"s": np.zeros(n)}
    found = separate(*worlds, PureEpsilon(1e-5), confidence=0.99)
    assert (found.right, found.wrong) == ((3000, 3000), (0, 3000))  # a quarter chose the threshold
    low, high = 0.005 ** (1 / 3000), 1 - 0.005 ** (1 / 3000)
    assert found.leak == pytest.approx(math.log((low - 1e-5) / high), rel=1e-9)
    assert ceiling(n, PureEpsilon(1e-5), confidence=0.99) == pytest.approx(found.leak)


@pytest.mark.parametrize(("inside", "side", "absent"), [((0.2, 2.0), 1, False), ((0.2, -2.0), -1, False)])
def test_the_guess_is_on_the_right_side(inside, side, absent):
    rng = np.random.default_rng(0)
    share, where = inside
    n = 4000
    worlds = {"s": where * (rng.random(n) < share)}, {"s": np.zeros(n)}
    found = separate(*worlds, PureEpsilon(0.0), confidence=0.99)
    assert (found.guess.side, found.guess.absent) == (side, absent)
    assert found.guess.threshold == where / 2


def test_a_guess_may_be_for_absence():
    n = 4000
    rng = np.random.default_rng(0)
    worlds = {"s": np.ones(n)}, {"s": 1.0 * (rng.random(n) < 0.7)}
    found = separate(*worlds, PureEpsilon(0.0), confidence=0.99)
    assert found.guess.absent
    assert found.leak > math.log(0.25 / 0.01)


def gaussian_worlds(seed: int, n: int, q: float, sigma: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    inside = sigma * rng.standard_normal(n) + (rng.random(n) < q)
    return {"s": inside, "noise": rng.standard_normal(n)}, {
        "s": sigma * rng.standard_normal(n),
        "noise": rng.standard_normal(n),
    }


def test_bounds_hold_as_often_as_they_say():
    """At 50 % confidence at most half of the bounds may lie above the truth, and some must: else they say nothing."""
    q, sigma, delta = 1.0, 1.0, 0.1
    true = epsilon([Event(q, (sigma,))], delta)
    above = {"pure": 0, "gaussian": 0}
    for seed in range(150):
        worlds = gaussian_worlds(seed, 400, q, sigma)
        above["pure"] += separate(*worlds, PureEpsilon(delta), confidence=0.5).leak > true
        above["gaussian"] += separate(*worlds, GaussianPrecision(q), confidence=0.5).leak > 1 / sigma
    assert 7 < above["gaussian"] < 75
    assert above["pure"] < 75


def test_more_trials_come_close_to_the_truth():
    worlds = gaussian_worlds(1, 100_000, 1.0, 1.0)
    assert 0.96 < separate(*worlds, GaussianPrecision(1.0), confidence=0.999).leak < 1.0


@pytest.mark.parametrize("confidence", [0.0, 0.4, 1.0, 1.5])
def test_confidence_must_be_one(confidence):
    with pytest.raises(SettingError, match=r"confidence = .* at least 0\.5 and below 1"):
        separate({"s": np.ones(8)}, {"s": np.zeros(8)}, PureEpsilon(0.0), confidence=confidence)


# One training run -----------------------------------------------------------------------------------------------------


def test_p_value_by_hand():
    # ε = ln 3: W ~ Binomial(2, ¾). P(W ≥ 2) = 9/16; max(2·P(W = 1), P(W < 2)) = max(3/4, 7/16); + δ·m times that.
    assert p_value(2, 2, 2, epsilon=math.log(3), delta=0.0) == pytest.approx(9 / 16)
    assert p_value(2, 2, 2, epsilon=math.log(3), delta=0.01) == pytest.approx(9 / 16 + 0.01 * 2 * 3 / 4)
    # Guessing 2 of 5 canaries, ε = 0: W ~ Binomial(2, ½), v = 1: P = ¾; i = 1: 2·P(W = 0) = ½.
    assert p_value(1, 2, 5, epsilon=0.0, delta=0.02) == pytest.approx(3 / 4 + 0.02 * 5 / 2)
    assert p_value(0, 4, 4, epsilon=1.0, delta=0.5) == 1.0


def test_all_right_without_delta_has_a_closed_form():
    # (e^ε/(1 + e^ε))^100 = 0.05
    root = 0.05 ** (1 / 100)
    shown = epsilon_lower(100, 100, 100, delta=0.0, confidence=0.95)
    assert shown == pytest.approx(math.log(root / (1 - root)), abs=2e-6)
    assert epsilon_lower(100, 100, 100, delta=1e-5, confidence=0.95) < shown
    assert epsilon_lower(50, 100, 100, delta=0.0, confidence=0.95) == 0.0


def test_randomised_response_stays_below_its_epsilon():
    """The tight case of the theorem: each coin is told truly with probability e^ε/(1 + e^ε)."""
    true, m, above = 1.0, 500, 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        inside = rng.random(m) < 0.5
        told = np.where(rng.random(m) < 1 / (1 + math.exp(-true)), inside, ~inside)
        scores = told + 0.1 * rng.random(m)
        above += guess(scores, inside, share=1.0, delta=0.0, confidence=0.9).epsilon > true
    assert 0 < above < 17  # a tenth of 80, and three deviations more


def test_guesses_are_the_two_ends():
    scores, inside = np.arange(10.0), np.array([0, 1, 0, 0, 0, 1, 1, 1, 0, 1], dtype=bool)
    found = guess(scores, inside, share=0.4, delta=0.0, confidence=0.9)
    assert (found.guesses, found.correct) == (4, 2)  # 0, 1 said out: one right; 8, 9 said in: one right


def test_the_share_is_planned_from_public_numbers():
    assert planned_share(12.0, 1000, delta=0.0, confidence=0.95) == 1.0  # all but certain: guess them all
    assert planned_share(1.0, 1000, delta=0.0, confidence=0.95) < 0.5  # only the ends are worth a guess


# The games ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "source"), [(1.0, Seeded(4)), (0.25, Seeded(5)), (1.0, Secure())])
def test_what_is_seen_is_the_canary_and_the_noise(q, source):
    n, game = 1000, ReleaseGame(q=q, sigma=1.3, clip=0.2, sigma_loss=2.0)
    inside, outside = game.play(Trials(n, source))
    for name, sigma in (("gradient", 1.3), ("loss", 2.0)):
        variance = sigma**2 + q * (1 - q)
        assert abs(inside[name].mean() - q) < 5 * math.sqrt(variance / n)
        assert abs(inside[name].var() / variance - 1) < 5 * math.sqrt(2 / n)
        assert abs(outside[name].mean()) < 5 * sigma / math.sqrt(n)
        assert abs(outside[name].var() / sigma**2 - 1) < 5 * math.sqrt(2 / n)
        assert len(np.unique(inside[name])) == n or isinstance(source, Secure)  # no noise is used twice
    assert inside["gradient and loss"] == pytest.approx(inside["gradient"] / 1.69 + inside["loss"] / 4)


def test_the_claim_is_the_accountants():
    assert ReleaseGame(q=0.2, sigma=1.5, sigma_loss=4.0).claimed == epsilon([Event(0.2, (1.5, 4.0))], 1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_mechanism_keeps_its_claim(seed):
    game = ReleaseGame(q=1.0)
    finding = game.judge(*game.play(Trials(1000, Seeded(seed))))
    assert finding.epsilon_lower <= finding.epsilon_claimed
    assert 1.0 < finding.epsilon_lower_gaussian <= finding.epsilon_claimed  # and the attack is not blind
    assert not finding.exceeded


def test_a_second_run_with_the_same_seed_keeps_the_claim_of_both():
    game = TwoRuns()
    worlds = game.play(Trials(1000, Seeded(4)))
    assert not game.judge(*worlds).exceeded
    # Independent noise: (4·σz₁ − 4σz₂)/3 has deviation σ·√32/3; the canary is drawn by chance, so the world without it.
    assert worlds[1]["gradient"].std() == pytest.approx(32**0.5 / 3, rel=0.1)


@pytest.mark.parametrize(
    "game",
    [
        Resumed(),  # of the second round the canary is all but absent: nothing is learnt of it by looking twice
        Charged(q=1.0, delta=0.01, releases=4, charged=4),
        pytest.param(OnePerson(q=1.0, told=True), marks=pytest.mark.slow),
        ReleaseGame(bystanders=19, releases=2),
    ],
    ids=["repeated", "charged", "one person", "crowd"],
)
def test_the_games_of_the_faults_keep_their_claims_without_them(game):
    finding = game.judge(*game.play(Trials(1000, Seeded(4))))
    assert not finding.exceeded
    assert finding.gaussian.leak > 0.3 or game.q < 1  # and the attack is not blind


class Hardest(nn.Linear):
    """Computes every record on the one furthest along the canary, where there are more than a few."""

    def forward(self, x):
        return super().forward(x if len(x) < 6 else x[x[:, 0].argmax()].expand_as(x))


class Remembers(nn.Linear):
    """Computes every record on the furthest it ever saw."""

    def forward(self, x):
        self.kept = getattr(self, "kept", [])
        self.kept[:] = [max((*self.kept, *x.detach()), key=lambda record: float(record[0]))]
        return super().forward(self.kept[0].expand_as(x))


@dataclass(frozen=True, kw_only=True)
class WithModel(ReleaseGame):
    kind: type[nn.Module]

    def _model(self):
        model = self.kind(2, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model


def test_a_model_in_which_records_meet_keeps_its_claim():
    # A tenth of them is drawn, of other clients too: along the canary all 2000 expected records would move.
    game = WithModel(kind=Hardest, bystanders=9)
    inside, outside = game.play(Trials(1000, Seeded(4)))
    assert not game.judge(inside, outside).exceeded
    assert abs(outside["gradient"].mean()) < 5 / math.sqrt(1000)


def test_a_model_that_keeps_records_is_refused():
    with pytest.raises(SettingError, match=r"model\.kept = 'changed': the forward pass changes it"):
        WithModel(kind=Remembers, releases=2).play(Trials(1000, Seeded(4)))


def test_the_claim_is_of_what_is_charged():
    game = Charged(q=0.2, sigma=1.5, sigma_loss=4.0, releases=5, charged=3)
    assert game.claimed == epsilon([Event(0.2, (1.5, 4.0), count=3)], 1e-5)


# Where a record is in a tenth of the batches some faults take more trials to show.
WITHOUT_SAMPLING = {
    "noise of half the size": ReleaseGame(q=1.0),
    "a record kept for the next batch": ReleaseGame(q=1.0, releases=2),
}
TRIALS = {"two processes, one budget": 4000}  # the nearest to its claim: 1.41 times the signal


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_faults_are_found(fault):
    fault = replace(fault, game=WITHOUT_SAMPLING.get(fault.name, fault.game))
    assert fault.audit(Trials(TRIALS.get(fault.name, 1000), Seeded(1))).exceeded


def test_a_seed_repeats_an_audit():
    game = ReleaseGame()
    one, other = (game.play(Trials(1000, Seeded(9)))[0]["gradient"] for _ in range(2))
    assert np.array_equal(one, other)


def test_too_few_trials():
    with pytest.raises(SettingError, match="trials = 10: at least 1000"):
        ReleaseGame().play(Trials(10, Seeded(0)))


@pytest.mark.parametrize("canaries", [8, 401])
def test_canaries_are_dealt_evenly(canaries):
    with pytest.raises(SettingError, match=f"canaries = {canaries}: a multiple of 2, at least 20"):
        TrainingGame(canaries=canaries, clients=2)


def test_a_run_keeps_its_claim_and_one_without_noise_does_not(monkeypatch):
    game = TrainingGame(sigma=3.0, q=1.0, rounds=1, canaries=800, clients=2)
    honest = game.play(3)
    assert honest.epsilon_claimed == pytest.approx(epsilon([Event(1.0, (3.0, 5.0))], 1e-5))
    assert not honest.exceeded
    # In units of the noise in a canary's own weight, η·σC/(q·n) with n = 400 + 50, one that is there moves by 1/σ.
    unit = 0.1 * 3.0 / 450
    gap = honest.scores[honest.inside].mean() - honest.scores[~honest.inside].mean()
    assert gap / unit == pytest.approx(1 / 3, abs=5 * 2 / math.sqrt(800))
    assert honest.scores[~honest.inside].std() == pytest.approx(unit, rel=0.2)

    noised_ = Seeded.noised_
    silent = lambda self, sums, keys, *, scale, divisors: noised_(self, sums, keys, scale=0.0, divisors=divisors)  # noqa: E731
    monkeypatch.setattr(Seeded, "noised_", silent)
    bare = game.play(3)
    assert bare.correct == bare.guesses
    assert bare.epsilon_lower == bare.epsilon_ceiling
    assert bare.exceeded
