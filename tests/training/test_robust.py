"""Robust means by hand, on methods that they fit and on those that they do not, and who is named."""

import math

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms import ALGORITHMS
from fedfdp.algorithms.by_loss import LossUpload
from fedfdp.algorithms.record_types import Upload
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.weights import Weights
from fedfdp.engines.local import LocalEngine
from fedfdp.training.robust import Conduct, defended, named


def uploads(*updates, kind=Upload, **more):
    rows = [Weights.of({"a": torch.tensor(u[:1]), "b": torch.tensor(u[1:])}) for u in updates]
    return [kind(f"c{i}", 10 * 1000**i, row, **{k: v[i] for k, v in more.items()}) for i, row in enumerate(rows)]


def centre(rule, *updates, **settings):
    made, _ = defended(rule, uploads(*updates), {}, lambda _: 0.0, **settings)
    return [[round(float(v), 5) for t in one.update.values() for v in t] for one in made]


def test_rules_by_hand_whatever_a_client_declares():
    # of each number by itself: the middle one of 1, 2, 3, 4, 90; the mean of 2, 3, 4
    rows = [1.0, 9.0], [2.0, 0.0], [3.0, 1.0], [4.0, 2.0], [90.0, -8.0]
    assert centre("median", *rows) == [[3.0, 1.0]] * 5
    assert centre("median", *rows[:4]) == [[2.5, 1.5]] * 4  # of an even number, the mean of the two in the middle
    assert centre("trimmed", *rows) == [[3.0, 1.0]] * 5
    assert centre("trimmed", *rows, trim=0.4) == centre("median", *rows)
    # of length 5, 10 and 30: the median is 10
    assert centre("norm", [3.0, 4.0], [6.0, 8.0], [18.0, -24.0]) == [[3.0, 4.0], [6.0, 8.0], [6.0, -8.0]]
    assert centre("norm", [3.0, 4.0], [6.0, 8.0], norm=1.0) == [[0.6, 0.8]] * 2


def test_a_loss_beside_the_update_is_one_vote_too():
    sent = uploads([1.0, 1.0], [2.0, 2.0], [3.0, 3.0], kind=LossUpload, loss=[0.5, 0.7, 1e6])
    made, _ = defended("median", sent, {}, lambda _: 0.0)
    assert [one.loss for one in made] == [0.7] * 3


def test_what_is_no_number_is_left_out_and_named():
    made, conduct = defended("median", uploads([1.0, 1.0], [math.nan, 1.0], [3.0, 5.0]), {}, lambda _: 0.0)
    assert [one.client for one in made] == ["c0", "c2"]
    assert [round(float(v), 5) for t in made[0].update.values() for v in t] == [2.0, 3.0]
    assert named(conduct) == {"c1": "sent NaN or infinity in 1 rounds"}


def test_length_and_direction_by_hand():
    # lengths 5, 10, 20 with noise that adds 0, 75 and 0 to their squares: √25 is the median without noise
    noise = {"c0": 0.0, "c1": 75.0, "c2": 0.0}
    _, conduct = defended("norm", uploads([3.0, 4.0], [8.0, 6.0], [0.0, -20.0]), {}, lambda one: noise[one.client])
    assert [one.ratio for one in conduct.values()] == pytest.approx([1.0, 1.0, 4.0])
    # the others of c0 at length 1: (0.8, 0.6) + (0, −1) = (0.8, −0.4)
    assert conduct["c0"].cosine == pytest.approx((0.6 * 0.8 - 0.8 * 0.4) / math.sqrt(0.8))
    assert conduct["c2"].cosine == pytest.approx(-1.4 / math.hypot(1.4, 1.4))


def test_who_is_named():
    plain = {f"c{i}": Conduct(20, 0.02 * i, 4.0 + 0.1 * i, 1.0 + 0.01 * i) for i in range(8)}
    assert named({}) == {}
    assert named(plain) == {}
    long, away = Conduct(20, 20 * math.log(10), 4.0, 1.0), Conduct(20, 0.0, -4.0, 1.0)
    found = named(plain | {"long": long, "away": away})
    assert found.keys() == {"long", "away"}
    assert "10.0 times as long" in found["long"]
    few = Conduct(4, 0.0, -0.8, 0.2)  # four rounds are not enough to judge a direction
    assert named(plain | {"few": few}) == {}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_says_which_rules_fit(name):
    votes = {"fedavg", "fedprox", "fedfair", "fedfdp", "ditto", "mrmtl"}
    bounds = votes | {"afl", "term", "propfair", "semivred", "fedmgda", "fedfv"}
    for rule, fits in ("median", votes), ("trimmed", votes), ("norm", bounds):
        if name in fits:
            ALGORITHMS[name]().check_robust(rule)
        else:
            with pytest.raises(SettingError, match=f"server.robust = '{rule}': not for {ALGORITHMS[name].__name__}"):
                ALGORITHMS[name]().check_robust(rule)


def test_a_method_of_your_own_that_aggregates_otherwise_is_refused():
    class Mine(fedfdp.FedAvg):
        def aggregate(self, state, uploads):
            return state

    assert Mine.robust == ()
    assert fedfdp.FedAvg.robust


class Poisoned(LocalEngine):
    """Client d sends its update flipped, 30 times as long."""

    def round(self, *given, **options):
        for upload, memory in super().round(*given, **options):
            factor = -30.0 if upload.client == "d" else 1.0
            yield type(upload)(upload.client, upload.records, w.multiply(upload.update, factor)), memory


def run(robust=None, **settings):
    x = torch.randn(600, 6, generator=torch.Generator().manual_seed(0))
    y = (x @ torch.tensor([3.0, -2.0, 1.0, 0.0, 2.0, -1.0]) > 0).long()
    torch.manual_seed(0)
    holders = {name: (x[i::6], y[i::6]) for i, name in enumerate("abcdef")}
    return fedfdp.train(
        nn.Linear(6, 2),
        fedfdp.Federation.from_clients(holders),
        server=fedfdp.ServerOptimizer(robust=robust),
        rounds=12,
        eval_every=12,
        threads=1,
        **settings,
    )


def test_a_poisoned_client_does_no_harm_and_is_named(tmp_path):
    options = {"algorithm": fedfdp.FedAvg(lr=0.5), "engine": Poisoned}
    with pytest.raises(fedfdp.DivergedError):
        run(**options)
    for rule in ("median", "trimmed", "norm"):
        summary = run(rule, **options, out=tmp_path / rule).summary
        assert summary["accuracy"] > 0.9
        assert list(summary["robust"]["named"]) == ["d"]


def test_privacy_costs_the_same_and_a_run_is_resumed(tmp_path):
    private = {"algorithm": fedfdp.FedFDP(lr=0.5), "privacy": fedfdp.DPSGD(sigma=2.0, q=0.2, clip=0.5, epsilon=8.0)}
    plain, robust = run(**private).summary, run("median", **private, out=tmp_path / "whole").summary
    assert plain["epsilon"] == robust["epsilon"]

    def stop(update):
        if update.step.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("median", **private, out=tmp_path / "cut", on_update=stop)
    again = run("median", **private, out=tmp_path / "cut", resume=True).summary
    assert again["robust"] == robust["robust"]
    assert again["loss"] == robust["loss"]


def test_fairness_at_the_server_and_one_vote_each_do_not_go_together():
    with pytest.raises(SettingError, match=r"server.robust = 'median': one vote .* set algorithm.server_lam = 0"):
        run("median", algorithm=fedfdp.FedFDP(lr=0.5, server_lam=2.0))
    run("norm", algorithm=fedfdp.FedFDP(lr=0.5, server_lam=2.0))


def test_models_of_different_width_are_refused():
    narrow = Weights.of({"a": torch.zeros(1)})
    with pytest.raises(SettingError, match="not for models of different width"):
        defended("median", [*uploads([1.0, 1.0]), Upload("n", 1, narrow.of({"a": torch.zeros(2)}))], {}, lambda _: 0.0)
