"""Private ranges: what a record can change, what noise is added, what it costs, and that every ledger is charged."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedfdp.algorithms import FedFDP
from fedfdp.core.errors import BudgetError, DataError, SettingError
from fedfdp.data.private_ranges import BINS, Wanted, counts, ranges, released
from fedfdp.data.schema import Facts
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.accounting.events import repeat
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure, grid_step
from fedfdp.runs import RunFolder, layers
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.training.budget import resolve_privacy
from support import Given

WANTED = [Wanted("any"), Wanted("between", (-10.0, 10.0)), Wanted("other")]
VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 8), st.just(3)), elements=VALUES), st.data())
def test_one_record_changes_all_counts_together_by_at_most_the_root_of_the_columns(values, data):
    """The sensitivity that the noise is scaled by, on any records whatever: NaN, infinities and zeros among them."""
    left_out = data.draw(st.integers(0, len(values) - 1))
    change = counts(values, WANTED) - counts(np.delete(values, left_out, axis=0), WANTED)
    assert np.linalg.norm(change) <= math.sqrt(3)
    assert (change >= 0).all()


def test_the_bound_is_reached():
    assert np.linalg.norm(counts(np.ones((1, 3)), WANTED)) == math.sqrt(3)


def test_counts_by_hand():
    got = counts(np.array([[3.0], [3.5], [-1.0], [0.0], [np.nan], [1e30]]), [Wanted("v")])
    edges = Wanted("v").edges
    filled = {(edges[i], edges[i + 1]): got[i] for i in np.flatnonzero(got)}
    least = 2.0**-20
    # numpy's bins are closed below: −1 begins (−1, −0.5); what is beyond the last power of two counts there
    assert filled == {(2.0, 4.0): 2, (-1.0, -0.5): 1, (-least, least): 1, (2.0**39, 2.0**40): 1}


def test_the_noise_is_sigma_times_the_root_of_the_columns():
    exact = np.arange(5.0)
    assert released(exact, 4, 3.0, Given(noise=0.5), "north").tolist() == [x + 0.5 * 3.0 * 2.0 for x in exact]
    noise = released(np.zeros(40_000), 9, 2.0, Seeded(0), "north")
    assert noise.std() == pytest.approx(2.0 * 3.0, rel=0.02)
    assert not np.array_equal(noise, released(np.zeros(40_000), 9, 2.0, Seeded(0), "south"))


def test_in_a_deployment_what_leaves_is_on_a_grid():
    noised = released(np.full(100, 0.3), 4, 3.0, Secure(), "north")
    step = grid_step(6.0)
    assert np.array_equal(noised / step, np.round(noised / step))
    assert not np.array_equal(noised, released(np.full(100, 0.3), 4, 3.0, Secure(), "north"))


def test_quantiles_by_hand_where_the_noise_is_nothing():
    wanted = [Wanted("v", (0.0, 64.0))]  # bins of width 1
    total = np.zeros(BINS)
    total[10:20] = 100.0
    assert ranges(total, wanted, sigma=1e-3, holders=1, tail=0.0)["v"] == (10.0, 20.0)
    assert ranges(total, wanted, sigma=1e-3, holders=1, tail=0.05)["v"] == (10.5, 19.5)


def test_bins_that_noise_alone_could_fill_are_taken_as_empty():
    rng, wanted = np.random.default_rng(0), [Wanted("v", (0.0, 64.0))]
    total = 10.0 * rng.normal(size=BINS)
    with pytest.raises(DataError, match=r"column 'v': too few records for a private range; it takes 36 in one bin"):
        ranges(total, wanted, sigma=10.0, holders=1, tail=0.01)  # Φ⁻¹(1 − 0.01/64) = 3.605 deviations
    total[30] += 500
    low, high = ranges(total, wanted, sigma=10.0, holders=1, tail=0.0)["v"]
    assert (low, high) == (30.0, 31.0)


def test_ranges_of_a_known_distribution_are_found_privately():
    values = np.random.default_rng(1).normal(50.0, 10.0, (20_000, 1))
    total = released(counts(values, [Wanted("v", (0.0, 200.0))]), 1, 10.0, Seeded(3), "all")
    low, high = ranges(total, [Wanted("v", (0.0, 200.0))], sigma=10.0, holders=1, tail=0.01)["v"]
    # the normal quantiles are 50 ± 23.26; a bin is 3.125 wide
    assert low == pytest.approx(50 - 23.26, abs=3.2)
    assert high == pytest.approx(50 + 23.26, abs=3.2)


def test_the_price_is_that_of_one_gaussian():
    """Of σ = 10 at δ = 1e-5: from the Gaussian mechanism's own curve (Balle and Wang 2018), by no accountant."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def delta_of(eps, sigma=10.0):
        half = 1 / (2 * sigma)
        return norm.cdf(half - eps * sigma) - math.exp(eps) * norm.cdf(-half - eps * sigma)

    exact = brentq(lambda e: delta_of(e) - 1e-5, 0.01, 2.0)
    facts = Facts(columns={"v": "private"})
    assert facts.before == (Event(1.0, (10.0,)),)
    assert epsilon(facts.before, 1e-5) == pytest.approx(exact, rel=1e-3)
    assert Facts(columns={"v": [0, 1]}).before == ()
    assert Facts(target="private").before == facts.before


@pytest.mark.parametrize("missing", ["rounds", "sigma", "epsilon"])
def test_what_was_released_before_comes_off_the_budget(missing):
    before, method = (Event(1.0, (5.0,)),), FedFDP()
    given = {"epsilon": 3.0, "sigma": 2.0, "rounds": 20}
    given[missing] = None
    private = DPSGD(
        delta=1e-5, epsilon=given["epsilon"], sigma=given["sigma"], q=0.05, accountant="rdp", sigma_loss=5.0
    )

    def cost(privacy, rounds):
        return epsilon([*before, *repeat(method.events(None, privacy), rounds)], 1e-5, accountant="rdp")

    resolved, rounds = resolve_privacy(private, method, given["rounds"], before=before)
    alone, most = resolve_privacy(private, method, given["rounds"])
    if missing == "rounds":
        assert cost(resolved, rounds) <= 3.0 < cost(resolved, rounds + 1)
        assert rounds < most
    elif missing == "sigma":
        assert cost(resolved, 20) <= 3.0
        assert cost(resolved, 20) == pytest.approx(3.0, rel=1e-3)
        assert resolved.noise > alone.noise
    else:
        assert resolved.epsilon == cost(resolved, 20) > alone.epsilon


def test_a_budget_that_the_estimate_alone_takes():
    with pytest.raises(BudgetError, match=r"estimating ranges takes .* of it, and 50 rounds do not fit"):
        resolve_privacy(
            DPSGD(epsilon=0.5, delta=1e-5, q=0.05, sigma_loss=5.0, accountant="rdp"),
            FedFDP(),
            50,
            before=(Event(1.0, (2.0,)),),
        )


RUN = """
name = "banks"
rounds = 3
[data]
source = "banks.csv"
holder = "bank"
label = "bad"
classes = 2
columns = { income = "private", age = { within = [0, 128] } }
[data.estimate]
sigma = 4.0
[model]
name = "linear"
[privacy]
epsilon = 4.0
q = 0.1
"""


@pytest.fixture
def banks(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{'ab'[i % 2]},{rng.lognormal(7, 0.5):.2f},{rng.integers(20, 70)},{rng.integers(2)}" for i in range(1200)]
    (tmp_path / "banks.csv").write_text("bank,income,age,bad\n" + "\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_every_ledger_is_charged_before_round_0_and_the_statement_includes_it(banks):
    config = configs.load(str(banks / "run.toml"))
    result = launch(config, out=banks / "run")
    charges = (banks / "run" / "ledger.jsonl").read_text().splitlines()[1:]
    assert ['"client":"a","round":-1,"attempt":0' in charges[0], '"events":[[1.0,[4.0],1]]' in charges[0]] == [True] * 2
    assert ['"client":"b"' in charges[1], '"events":[[1.0,[4.0],1]]' in charges[1]] == [True] * 2
    config = configs.from_dict(RunFolder.find(banks / "run").config())
    rounds = repeat(config.algorithm.events(None, config.privacy), 3)
    assert result.summary["epsilon"] == pytest.approx(epsilon([Event(1.0, (4.0,)), *rounds], 1e-5), rel=1e-9)
    assert "`ranges`: once, before training" in (banks / "run" / "privacy.md").read_text()


def test_the_ranges_are_kept_with_the_run_and_used_when_it_goes_on(banks):
    """With secure randomness another estimate would differ, and a resumed run would be refused as another one."""
    from dataclasses import replace

    config = replace(configs.load(str(banks / "run.toml")), randomness="secure")

    def stop(update):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(config, out=banks / "run", on_update=stop)
    kept = RunFolder.find(banks / "run").config()["data"]["estimate"]["found"]
    low, high = kept["income"]
    assert low < high  # how close they come is tested with seeds: fresh noise may by chance be far off
    assert set(kept) == {"income", "age"}
    result = launch(config, out=banks / "run", resume=True)
    assert result.summary["rounds"] == 3
    assert (banks / "run" / "ledger.jsonl").read_text().count('"events":[[1.0,[4.0],1]]') == 2
    assert RunFolder.find(banks / "run").config()["data"]["estimate"]["found"] == kept


def test_the_scaled_records_follow_from_the_ranges_that_were_found(banks):
    federation = federation_of(configs.load(str(banks / "run.toml")))
    low, high = federation.found["income"]
    income = np.loadtxt(banks / "banks.csv", delimiter=",", skiprows=1, usecols=1)
    expected = (np.clip(income, low, high) - low) / (high - low) * 2 - 1
    assert torch.allclose(federation.x[:, 0], torch.tensor(expected, dtype=torch.float32), atol=1e-6)
    assert federation.before == (Event(1.0, (4.0,)),)


def test_records_for_the_test_have_no_part_in_an_estimate(banks):
    """All that is special is marked for the test: the range must not know of it."""
    rows = [f"{'ab'[i % 2]},{10 ** (i % 4 == 0) * 100},30,{i % 2},{int(i % 4 == 0)}" for i in range(4000)]
    (banks / "banks.csv").write_text("bank,income,age,bad,held\n" + "\n".join(rows) + "\n")
    config = configs.load(str(banks / "run.toml"), ["data.test=held"])
    low, high = federation_of(config).found["income"]
    assert 64 <= low < high <= 128  # the octave of 100; the test's 1,000 are not in it


def test_a_target_can_be_private_too(banks):
    over = ["data.label=income", "data.target=private", "data.columns={age=[0,128], bad=[0,1]}", "data.classes=[]"]
    config = layers.layered(str(banks / "run.toml"), over)
    del config["data"]["classes"]
    del config["data"]["columns"]["income"]
    federation = federation_of(configs.from_dict(config))
    assert set(federation.found) == {"income"}
    assert (federation.classes, federation.y.dtype) == (None, torch.float32)
    assert -1 <= float(federation.y.min()) < float(federation.y.max()) <= 1


def test_wrong_settings_of_an_estimate(banks):
    with pytest.raises(SettingError, match=r"data.estimate.sigma = 0.0"):
        configs.load(str(banks / "run.toml"), ["data.estimate.sigma=0.0"])
    with pytest.raises(SettingError, match=r"data.estimate.tail = 0.5"):
        configs.load(str(banks / "run.toml"), ["data.estimate.tail=0.5"])
    with pytest.raises(DataError, match="too few records for a private range"):
        federation_of(configs.load(str(banks / "run.toml"), ["data.estimate.sigma=200"]))


def test_ranges_that_were_found_keep_their_price(banks):
    """What a run found was paid for at its σ: taken into another run, it cannot be had for less."""
    launch(configs.load(str(banks / "run.toml")), out=banks / "run")
    kept = str(banks / "run" / "config.toml")
    again = launch(configs.load(kept), out=banks / "again")
    assert '"events":[[1.0,[4.0],1]]' in (banks / "again" / "ledger.jsonl").read_text()
    assert again.summary["epsilon"] > epsilon([Event(1.0, (4.0,))], 1e-5)
    with pytest.raises(SettingError, match=r"data.estimate.sigma = 1000.0: .* found with sigma = 4"):
        configs.load(kept, ["data.estimate.sigma=1000.0"])
    with pytest.raises(SettingError, match=r"data.estimate.sigma = 4.0: .* found with sigma = 0"):
        configs.load(kept, ["data.estimate.found_with=0.0"])
    anew = layers.layered(kept, ["data.estimate.sigma=5.0"])
    del anew["data"]["estimate"]["found"], anew["data"]["estimate"]["found_with"]
    assert federation_of(configs.from_dict(anew)).before == (Event(1.0, (5.0,)),)


def test_records_that_were_opened_at_another_price_are_refused(banks):
    cheap = configs.load(str(banks / "run.toml"), ["data.estimate.sigma=9.0"])
    opened = federation_of(configs.load(str(banks / "run.toml")))
    with pytest.raises(SettingError, match=r"data.estimate.sigma = 9.0: .* found with sigma = 4"):
        launch(cheap, out=banks / "run", federation=opened)


def test_a_run_goes_on_with_ranges_of_its_own_price_only(banks):
    def stop(update):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(configs.load(str(banks / "run.toml")), out=banks / "run", on_update=stop)
    with pytest.raises(SettingError, match=r"data.estimate.sigma = 9.0: .* found with sigma = 4"):
        launch(configs.load(str(banks / "run.toml"), ["data.estimate.sigma=9.0"]), out=banks / "run", resume=True)
    assert launch(configs.load(str(banks / "run.toml")), out=banks / "run", resume=True).summary["rounds"] == 3
