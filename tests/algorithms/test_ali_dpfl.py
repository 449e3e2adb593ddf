"""ALI-DPFL in whole runs: steps chosen on the way, the budget kept by the filter and used up."""

from dataclasses import replace

import pytest

import fedfdp
from fedfdp.algorithms import ALIDPFL
from fedfdp.models import build
from fedfdp.privacy.accounting.events import history_of
from fedfdp.privacy.accounting.filter import RenyiFilter
from fedfdp.privacy.ledger import Ledger
from fedfdp.runs.folder import LEDGER

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=4.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant="rdp")


@pytest.fixture
def charged(monkeypatch):
    """Everything that was charged to a client's ledger, round by round."""
    found: dict[str, list] = {}
    charge = Ledger.charge

    def watch(self, round, request, events, **how):
        attempt = charge(self, round, request, events, **how)
        found.setdefault(self.client, []).append(tuple(events))
        return attempt

    monkeypatch.setattr(Ledger, "charge", watch)
    return found


def run(federation, method, **options):
    model = build("linear", input_shape=federation.input_shape, outputs=10, seed=1)
    return fedfdp.train(model, federation, algorithm=method, privacy=PRIVATE, **options)


def test_a_run_ends_when_its_steps_are_used_up(digits, charged):
    result = run(digits, ALIDPFL(lr=0.5, round_budget=30), seed=1)
    rounds = next(iter(charged.values()))
    assert all(spent == rounds for spent in charged.values())
    assert len(rounds) == result.summary["rounds"] < 30
    taus = [sum(event.count for event in events) for events in rounds]
    assert taus[:2] == [1, 1]  # nothing to compare yet
    assert max(taus) > 1
    assert all(events[-1].sigmas == (2.0, 5.0) and events[-1].count == 1 for events in rounds)
    # a filter of the order that was best for the first round, which no release has influenced, lets all of it through
    kept, spent = (
        RenyiFilter().expecting(history_of(rounds[0]), 4.0, 1e-5),
        [event for round in rounds for event in round],
    )
    assert kept.epsilon(history_of(spent), 1e-5) <= 4.0
    assert kept.epsilon(history_of([*spent, *rounds[0] * 4]), 1e-5) > 4.0  # and little more
    assert 0.95 * 4.0 < result.summary["epsilon"] <= 4.0


def test_rounds_that_are_as_many_as_the_steps_make_it_fedavg_with_one_step(digits, charged):
    result = run(digits, ALIDPFL(lr=0.5, round_budget=10_000))
    taus = [sum(event.count for event in events) for events in next(iter(charged.values()))]
    assert set(taus) == {1}
    assert len(taus) == result.summary["rounds"]
    more = history_of([replace(PRIVATE.event(losses=1), count=len(taus) + 1)])
    assert RenyiFilter().expecting(more, 4.0, 1e-5).epsilon(more, 1e-5) > 4.0


def test_its_own_round_budget_ends_a_run(digits):
    result = run(digits, ALIDPFL(lr=0.5, round_budget=3))
    assert result.summary["rounds"] == 3
    assert "psi_train" in result.summary  # the last round is looked at as the last


def test_a_resumed_run_goes_on_to_the_same_bits(digits, tmp_path):
    method = ALIDPFL(lr=0.5, round_budget=12)
    whole = run(digits, method, out=tmp_path / "whole", eval_every=1)

    def stop(update) -> None:
        if update.step.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, method, out=tmp_path / "cut", eval_every=1, on_update=stop)
    again = run(digits, method, out=tmp_path / "cut", eval_every=1, resume=True)
    assert again.model.state_dict().keys() == whole.model.state_dict().keys()
    assert all((a == b).all() for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True))
    sizes = [path.stat().st_size for path in (tmp_path / "whole" / LEDGER, tmp_path / "cut" / LEDGER)]
    assert sizes[0] == sizes[1]  # nothing was paid twice
