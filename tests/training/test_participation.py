"""Fractions, dropouts, stragglers: who is asked, who pays, and what late replies count for."""

from collections import Counter

import numpy as np
import pytest
import torch

import fedfdp
from fedfdp.algorithms.base import Population, Upload
from fedfdp.core.errors import SettingError
from fedfdp.models import build
from fedfdp.training.participation import Participation
from fedfdp.training.rounds import Trainer

NAMES = [f"c{i}" for i in range(20)]
PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5)


def test_everyone_by_default():
    who = Participation().round(NAMES, seed=0, round=3)
    assert (who.there, who.late) == (tuple(NAMES), {})


def test_a_fixed_fraction_is_exact_and_a_random_one_is_not():
    fixed = [len(Participation(fraction=0.3).round(NAMES, seed=1, round=t).there) for t in range(50)]
    assert set(fixed) == {6}
    loose = Participation(fraction=0.3, sampling="random")
    sizes = [len(loose.round(NAMES, seed=1, round=t).there) for t in range(400)]
    assert len(set(sizes)) > 3
    assert abs(np.mean(sizes) - 6) < 4 * np.sqrt(20 * 0.3 * 0.7 / 400)


def test_every_client_has_its_turn_and_the_seed_decides():
    rule = Participation(fraction=0.25)
    rounds = [rule.round(NAMES, seed=7, round=t).there for t in range(400)]
    counts = Counter(name for there in rounds for name in there)
    assert all(abs(counts[name] - 100) < 4.5 * np.sqrt(400 * 0.25 * 0.75) for name in NAMES)
    assert rounds[5] == rule.round(NAMES, seed=7, round=5).there
    assert rounds != [rule.round(NAMES, seed=8, round=t).there for t in range(400)]


def test_dropouts_are_away_and_stragglers_late():
    rule = Participation(dropout=0.2, stragglers=0.3, delay=3)
    rounds = [rule.round(NAMES, seed=2, round=t) for t in range(300)]
    present = np.mean([len(who.there) for who in rounds])
    late = [delay for who in rounds for delay in who.late.values()]
    assert abs(present - 16) < 0.5
    assert abs(len(late) / 300 - 16 * 0.3) < 0.5
    assert set(late) == {1, 2, 3}


def test_a_late_upload_counts_for_less():
    assert Participation(staleness=0.5).discount(3) == pytest.approx(0.5)
    population = Population(clients=2, records=20, smallest=10, classes=None)
    state = fedfdp.FedAvg().init({"w": torch.zeros(1)}, population, None)
    here = Upload("a", 10, {"w": torch.tensor([1.0])})
    late = Upload("b", 10, {"w": torch.tensor([4.0])}, discount=0.5)
    assert float(fedfdp.FedAvg().aggregate(state, [here, late]).weights["w"]) == pytest.approx((10 + 5 * 4) / 15)


def run(federation, charged: Counter | None = None, **options) -> fedfdp.Result:
    model = build("linear", input_shape=federation.input_shape, outputs=10, seed=1)
    settings = {"algorithm": fedfdp.FedFDP(lr=2.0), "privacy": PRIVATE, "rounds": 8, "eval_every": 4, "seed": 5}
    return fedfdp.train(model, federation, **(settings | options))


def charges(folder) -> Counter:
    import json

    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return Counter(line["client"] for line in lines if "round" in line)


def test_a_client_that_is_away_is_not_charged(digits, tmp_path):
    rule = Participation(fraction=0.5)
    run(digits, participation=rule, out=tmp_path / "run")
    names = [client.name for client in digits.clients]
    expected = Counter(name for t in range(8) for name in rule.round(names, seed=5, round=t).there)
    assert charges(tmp_path / "run") == expected


def test_a_straggler_pays_though_its_reply_is_dropped(digits, tmp_path):
    rule = Participation(stragglers=0.5)
    took_part = []
    run(digits, participation=rule, out=tmp_path / "run", on_update=lambda u: took_part.append(u.step.took_part))
    assert sum(charges(tmp_path / "run").values()) == 4 * 8
    assert sum(took_part) < 4 * 8


def test_late_replies_arrive_in_asynchronous_mode(digits):
    rule = Participation(stragglers=0.5, delay=2, asynchronous=True)
    took_part = []
    run(digits, participation=rule, rounds=30, on_update=lambda update: took_part.append(update.step.took_part))
    assert sum(took_part) >= 4 * 30 - 8  # all but what is on its way at the end
    assert max(took_part) > 4


def test_a_reply_on_its_way_keeps_its_own_update_and_not_that_of_all_clients(digits, monkeypatch):
    progress = []
    run_round = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda self: (progress.append(self) or step for step in run_round(self)))
    run(digits, participation=Participation(stragglers=0.9, delay=3, asynchronous=True))
    updates = [reply.upload.update for reply in progress[-1].progress.late]
    assert updates
    assert all(u.vectors[0].untyped_storage().nbytes() == 4 * u.vectors[0].numel() for u in updates)


def test_a_round_that_no_one_attends_does_not_end_the_run(digits):
    rule = Participation(fraction=0.3, sampling="random", dropout=0.5)
    took_part = []
    result = run(digits, participation=rule, on_update=lambda update: took_part.append(update.step.took_part))
    assert 0 in took_part
    assert result.summary["rounds"] == 8


@pytest.mark.parametrize("asynchronous", [False, True])
def test_interrupted_with_replies_on_their_way(digits, tmp_path, asynchronous):
    rule = Participation(fraction=0.75, dropout=0.2, stragglers=0.5, delay=3, asynchronous=asynchronous)
    whole = run(digits, participation=rule)

    def interrupt(update) -> None:
        if update.step.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, participation=rule, out=tmp_path / "cut", on_update=interrupt)
    resumed = run(digits, participation=rule, out=tmp_path / "cut", resume=True)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_more_rounds_fit_where_a_client_is_asked_in_some_only():
    from fedfdp.training.budget import resolve_privacy

    method = fedfdp.FedFDP()
    _, all_rounds = resolve_privacy(PRIVATE, method, None)
    _, half_rounds = resolve_privacy(PRIVATE, method, None, share=0.5)
    assert half_rounds == 2 * all_rounds


@pytest.mark.parametrize("bad", [{"fraction": 0.0}, {"dropout": 1.0}, {"stragglers": -0.1}, {"delay": 0}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=f"participation.{next(iter(bad))} = "):
        Participation(**bad)


def test_a_run_begun_with_another_generator_is_not_resumed(digits, tmp_path, monkeypatch):
    def interrupt(update) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as earlier:
        earlier.setattr("fedfdp.runs.train.STREAMS", "another")
        with pytest.raises(KeyboardInterrupt):
            run(digits, out=tmp_path / "cut", on_update=interrupt)
    with pytest.raises(fedfdp.FedFDPError, match="was started by a version of fedfdp that draws other numbers"):
        run(digits, out=tmp_path / "cut", resume=True)


def test_a_run_that_draws_from_the_operating_system_does_not_depend_on_the_generator(digits, tmp_path, monkeypatch):
    def interrupt(update) -> None:
        if update.step.round == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as earlier:
        earlier.setattr("fedfdp.runs.train.STREAMS", "another")
        with pytest.raises(KeyboardInterrupt):
            run(digits, out=tmp_path / "cut", on_update=interrupt, randomness="secure")
    assert run(digits, out=tmp_path / "cut", resume=True, randomness="secure").summary["rounds"] == 8
