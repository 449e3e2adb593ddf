"""A ledger under budgets, replays and filters. Crashes and tampering are in test_journal.py."""

import gc
import hashlib
import math
import os
import weakref
from pathlib import Path

import pytest

from fedfdp.core.errors import BudgetError, RunError, SettingError
from fedfdp.privacy.accounting import Event, base, epsilon, pld
from fedfdp.privacy.ledger import Ledger, LedgerBook
from fedfdp.privacy.ledger.file import Entry
from fedfdp.privacy.ledger.journal import head_of
from support import dp_event

STEP = (Event(0.05, (2.0, 5.0)),)
CHEAP = (Event(0.01, (8.0,)),)
SETTINGS = {"client": "alice", "data": "d1", "config": "c1", "budget": 3.52, "delta": 1e-5, "sync": False}


def ledger(path: Path | None = None, **changes: object) -> Ledger:
    return Ledger.open(path, **{**SETTINGS, **changes})


def spend(account: Ledger, rounds: range) -> int:
    """Charges round after round until the budget refuses; how many were allowed."""
    for done, number in enumerate(rounds):
        try:
            account.charge(number, f"request {number}", STEP, replayable=True)
        except BudgetError:
            return done
    return len(rounds)


@pytest.mark.parametrize(("accountant", "rounds"), [("pld", 763), ("rdp", 647), ("filter", 647)])
def test_the_budget_ends_where_the_accountant_says(accountant: str, rounds: int) -> None:
    account = ledger(accountant=accountant)
    assert spend(account, range(1000)) == rounds
    assert not account.afford(STEP)
    assert account.epsilon() <= 3.52
    if accountant != "filter":
        assert account.epsilon() == epsilon([Event(0.05, (2.0, 5.0), rounds)], 1e-5, accountant=accountant)


def test_a_refused_charge_writes_nothing_and_cheaper_ones_may_still_fit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path, budget=0.3) as account:
        assert spend(account, range(100)) == 3
        before = path.read_bytes(), account.epsilon()
        with pytest.raises(BudgetError, match=r"client 'alice': round 9 does not fit epsilon = 0\.3"):
            account.charge(9, "more", STEP, replayable=True)
        assert (path.read_bytes(), account.epsilon()) == before
    with ledger(budget=1.0, accountant="filter") as account:
        assert spend(account, range(100)) > 0
        with pytest.raises(BudgetError):
            account.charge(200, "more", STEP, replayable=True)
        assert account.afford(CHEAP)
        assert account.charge(200, "less", CHEAP, replayable=True) == 0
    assert epsilon([Event(0.05, (2.0, 5.0), 3)], 1e-5) <= 0.3 < epsilon([Event(0.05, (2.0, 5.0), 4)], 1e-5)


def test_the_paper_accountant_cannot_enforce(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="under-counts"):
        ledger(tmp_path / "ledger.jsonl", accountant="paper")
    with pytest.raises(SettingError, match="did you mean 'filter'"):
        ledger(accountant="filtr")
    assert not list(tmp_path.iterdir())


def test_no_budget_still_counts() -> None:
    account = ledger(budget=None)
    assert spend(account, range(800)) == 800
    assert account.epsilon() == epsilon([Event(0.05, (2.0, 5.0), 800)], 1e-5)
    with pytest.raises(SettingError, match="filter"):
        ledger(budget=None, accountant="filter")


@pytest.mark.parametrize("bad", [{"budget": 0.0}, {"budget": -1.0}, {"delta": 0.0}, {"budget": float("nan")}])
def test_settings_are_checked_before_a_file_exists(tmp_path: Path, bad: dict) -> None:
    with pytest.raises(SettingError):
        ledger(tmp_path / "ledger.jsonl", **bad)
    assert not list(tmp_path.iterdir())


def test_replays_are_free_and_anything_else_is_a_new_attempt(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as account:
        assert account.charge(0, "a", STEP, replayable=True) == 0
        once = account.epsilon()
        assert account.charge(0, "a", STEP, replayable=True) == 0
        assert account.epsilon() == once
        assert account.charge(0, "b", STEP, replayable=True) == 1  # another broadcast: never the same noise
        assert account.charge(0, "a", STEP, replayable=True) == 0
        assert account.charge(0, "a", STEP, replayable=False) == 2  # its answer is gone: a fresh one is paid for
        assert account.charge(1, "a", STEP, replayable=True) == 0
        total = account.epsilon()
        assert total == epsilon([Event(0.05, (2.0, 5.0), 4)], 1e-5)
    with ledger(path) as account:  # and it knows them after it was closed
        assert account.epsilon() == total
        assert account.charge(0, "b", STEP, replayable=True) == 1
        assert account.charge(0, "c", STEP, replayable=True) == 3
        assert [entry.attempt for entry in account.entries()] == [0, 1, 2, 0, 3]
    with ledger(accountant="filter") as account:
        assert account.charge(0, "a", STEP, replayable=True) == 0
        assert account.charge(0, "a", CHEAP, replayable=True) == 1  # the same question at another price


def test_a_replay_needs_no_room_in_the_budget() -> None:
    account = ledger(budget=0.3)
    spend(account, range(100))
    assert account.charge(2, "request 2", STEP, replayable=True) == 0
    with pytest.raises(BudgetError):
        account.charge(2, "request 2", STEP, replayable=False)


PLAIN, JOINT = Event(0.1, (2.0,)), Event(0.1, (2.0, 5.0))


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize(
    "other",
    [
        (JOINT,),  # one local step after two
        (Event(0.1, (2.0,), 16), JOINT),  # seventeen
        (PLAIN, PLAIN),  # another method, which releases no loss
        (PLAIN,),
        (Event(0.1, (2.0,)), Event(0.1, (2.0, 5.0)), Event(0.1, (2.0, 5.0))),
    ],
    ids=["K = 1", "K = 17", "no loss", "a part", "more"],
)
def test_a_fixed_schedule_has_one_price(tmp_path: Path, accountant: str, other: tuple[Event, ...]) -> None:
    """Kinds of events that were seen before are not enough: how many of each must be fixed beforehand too."""
    path = tmp_path / "ledger.jsonl"
    with ledger(path, accountant=accountant) as account:
        assert account.takes(other)
        account.charge(0, "a", (PLAIN, JOINT), replayable=True)
    with ledger(path, accountant=accountant) as account:  # it knows its price after it was closed
        assert not account.takes(other)
        with pytest.raises(RunError, match=r"round 1 costs .*, the first cost 1 × \(q 0.1, σ 1.857\) and 1 × .*filter"):
            account.charge(1, "b", other, replayable=True)
        assert account.history == ((0.1, JOINT.sigma_effective, 1), (0.1, 2.0, 1))
        assert account.charge(1, "b", (JOINT, PLAIN), replayable=True) == 0  # in any order
        # Given the batch, other releases of the same σ_eff are the same mechanism to an attacker: (σ⁻² + σ_l⁻²)^(−½).
        assert account.takes((Event(0.1, (2.0, 5.0)), Event(0.1, (4.0, 4.0, 4.0, 4.0))))
    assert ledger(accountant="filter").takes(other)


def test_what_is_released_before_the_first_round_does_not_set_the_price(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as account:
        account.charge_before("ranges", [Event(1.0, (40.0,))])
        account.charge(0, "a", STEP, replayable=True)
        account.charge_before("ranges", [Event(1.0, (40.0,))])  # a resumed run comes here again
        with pytest.raises(RunError, match="the first cost"):
            account.charge_before("more", [Event(1.0, (40.0,))])
    with ledger(path) as account:
        account.charge_before("ranges", [Event(1.0, (40.0,))])
        account.charge(1, "b", STEP, replayable=True)
        assert account.epsilon() == epsilon([Event(1.0, (40.0,)), Event(0.05, (2.0, 5.0), 2)], 1e-5)


def test_the_filter_keeps_one_order_whatever_the_prices_are(tmp_path: Path) -> None:
    """Fully adaptive: Σ of the Rényi costs at the order of the first round stays within that order's share of ε.

    The order is worked out here from dp-accounting's curves, for the first round alone; later prices do not move it.
    """
    import numpy as np
    from dp_accounting.rdp import RdpAccountant

    from fedfdp.privacy.accounting.renyi import ORDERS

    def curve(event: Event) -> np.ndarray:
        made = RdpAccountant(ORDERS)
        made.compose(dp_event(event))
        return np.array(made.rdp)

    alphas = np.array(ORDERS, dtype=float)
    room = 2.0 - (np.log1p(-1 / alphas) - (np.log(1e-5) + np.log(alphas)) / (alphas - 1))
    best = int(np.argmax(room / curve(Event(0.1, (2.0, 5.0)))))
    prices = [(Event(0.1, (2.0, 5.0)),), (Event(0.05, (1.8,), 3),), (Event(0.2, (4.0,)),), (Event(0.01, (3.0,), 7),)]
    path, spent = tmp_path / "ledger.jsonl", 0.0
    for round in range(400):  # opened anew each time: the order must come from the file's first round
        price = prices[round % 4]
        cost = sum(curve(event)[best] for event in price)
        with ledger(path, budget=2.0, accountant="filter") as account:
            if spent + cost > room[best]:
                with pytest.raises(BudgetError):
                    account.charge(round, "r", price, replayable=True)
                break
            account.charge(round, "r", price, replayable=True)
            spent += cost
            assert account.epsilon() == 2.0
    assert 4 < round < 399


def in_a_fork(path: Path, act) -> str:
    """What a forked child says of it: the error, or nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            said = ""
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        path.write_text(said)
        os._exit(0)
    os.waitpid(pid, 0)
    return path.read_text()


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_forked_child_cannot_spend_its_parents_budget_again(tmp_path: Path, where: str) -> None:
    path = tmp_path / "ledger.jsonl" if where == "file" else None
    account = ledger(path, budget=0.3)
    account.charge(0, "a", STEP, replayable=True)
    said = in_a_fork(tmp_path / "said", lambda: spend(account, range(1, 100)))
    assert f"opened by process {os.getpid()} and cannot be used in a fork of it" in said
    assert said.startswith("RunError: ")
    assert spend(account, range(1, 100)) == 2  # three in all fit, and the parent has them
    if path is None:
        return
    assert "RunError" in in_a_fork(tmp_path / "said", account.sync)
    assert in_a_fork(tmp_path / "said", account.close) == ""
    assert "another process is writing" in in_a_fork(tmp_path / "said", lambda: ledger(path, budget=0.3))
    account.close()
    assert in_a_fork(tmp_path / "said", lambda: ledger(path, budget=0.3).close()) == ""  # its own is its to use
    assert len(path.read_text().splitlines()) == 4


def test_a_child_that_outlives_its_parent_does_not_keep_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    account, (read, write), (begun, begin) = ledger(path), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(begin, b"x")
        os.read(read, 1)
        os._exit(0)
    try:
        os.read(begun, 1)  # until it runs, a child holds what its parent held
        account.close()
        ledger(path).close()  # although the child is there still
    finally:
        os.write(write, b"x")
        os.waitpid(pid, 0)


def test_entries_are_what_was_charged(tmp_path: Path) -> None:
    both = (Event(0.1, (2.0,), 3), Event(0.1, (2.0, 5.0)))
    with ledger(tmp_path / "ledger.jsonl") as account:
        account.charge(7, "r", both, replayable=True)
        (entry,) = account.entries()
        assert entry == Entry("alice", 7, 0, entry.request, both)
        assert account.epsilon() == epsilon(both, 1e-5)
    with pytest.raises(RunError, match="path"):
        ledger().entries()


@pytest.mark.parametrize(
    ("name", "value"),
    [("client", "bob"), ("data", "d2"), ("config", "c2"), ("budget", 4.0), ("delta", 1e-6), ("accountant", "rdp")],
)
def test_the_ledger_of_another_is_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path) as account:
        account.charge(0, "a", STEP, replayable=True)
    before = path.read_bytes()
    with pytest.raises(RunError, match=f"ledger of another {name}"):
        ledger(path, **{name: value})
    assert path.read_bytes() == before


def test_a_closed_ledger_takes_no_charge(tmp_path: Path) -> None:
    account = ledger(tmp_path / "ledger.jsonl")
    account.close()
    account.close()
    with pytest.raises(RunError, match="closed"):
        account.charge(0, "a", STEP, replayable=True)


def test_a_charge_needs_a_round_and_an_event() -> None:
    with pytest.raises(SettingError):
        ledger().charge(-1, "a", STEP, replayable=True)
    with pytest.raises(SettingError):
        ledger().charge(0, "a", (), replayable=True)


def test_a_filter_keeps_its_order_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path, accountant="filter") as account:
        for number in range(300):
            account.charge(number, "a", STEP, replayable=True)
        spent = account.epsilon()
    with ledger(path, accountant="filter") as account:
        assert account.epsilon() == spent
        assert account.afford(CHEAP)
        assert spend(account, range(300, 1000)) == 347


ABSURD = (Event(1e-9, (1e9,)),)  # so cheap that its best order, 4096, lets no usual round through


def test_an_absurd_first_charge_does_not_spoil_a_filter(tmp_path: Path) -> None:
    """Its order is of what was expected before anybody asked; a ledger that expects nothing is spoilt for good."""
    with ledger(accountant="filter") as spoilt:
        spoilt.charge(0, "absurd", ABSURD, replayable=True)
        assert not spoilt.afford(STEP)
    path = tmp_path / "ledger.jsonl"
    with ledger(path, accountant="filter", expects=STEP) as account:
        account.charge(0, "absurd", ABSURD, replayable=True)
        assert spend(account, range(1, 301)) == 300
    with ledger(path, accountant="filter", expects=ABSURD) as account:  # what it expects is said once, in the file
        assert spend(account, range(301, 1000)) == 347
        assert account.epsilon() == 3.52
    assert '"expects":[[0.05,[2.0,5.0],1]]' in path.read_text().splitlines()[0]


# Files as older versions wrote them: their header never says what a round is expected to cost.
HEADER = '{"n":0,"ledger":1,"client":"alice","data":"d1","config":"c1","budget":3.52,"delta":1e-05,"accountant":'
CHARGE = '{"n":1,"client":"alice","round":0,"attempt":0,"request":'
OLD = {
    "filter": (
        HEADER + '"filter","sum":"aa15d412bd7f1fab0abfd15918d3aa69"}\n',
        CHARGE
        + '"31d8f2cbb1fd010f9c6379f89cb7a227","events":[[0.01,[8.0],1]],"sum":"8e314d97cf6656501eb6eb907baafd95"}\n',
    ),
    "pld": (
        HEADER + '"pld","sum":"13122d2d98543d1e4edb59f03846acdc"}\n',
        CHARGE + '"c0eb403654f6ebaad32c4620f52fba78","events":[[0.05,[2.0,5.0],1]],'
        '"sum":"5f563fb217d9b6dff53ffbf1f8c0a62b"}\n',
    ),
}


def old_file(folder: Path, accountant: str) -> Path:
    path, lines = folder / f"{accountant}.jsonl", OLD[accountant]
    path.write_text("".join(lines))
    with open(head_of(path), "wb") as head:
        for number, line in enumerate(lines):
            announced = f"{number} {line}".encode()
            head.seek(number * 2**16)
            head.write(hashlib.sha256(announced).hexdigest()[:32].encode() + b" " + announced)
    return path


def test_older_ledgers_go_on_by_the_rule_they_began_with(tmp_path: Path) -> None:
    with ledger(old_file(tmp_path, "pld"), expects=STEP) as account:
        assert account.charge(0, "a", STEP, replayable=True) == 0
        assert account.epsilon() == epsilon(STEP, 1e-5)
        assert account.takes(STEP)
        assert not account.takes(CHEAP)
    # The filter's order was fixed by its first charge, at which CHEAP does best: 7. Another one now would be a choice
    # after releases. By hand, at α = 7: steps fit while one CHEAP and they cost at most ε − ln(6/7) + ln(7δ)/6.
    from dp_accounting.rdp import RdpAccountant

    cost = {}
    for event in (CHEAP[0], STEP[0]):
        one = RdpAccountant([7])
        one.compose(dp_event(event))
        cost[event] = float(one.rdp[0])
    room = 3.52 - math.log(6 / 7) + math.log(7e-5) / 6
    rounds = math.floor((room - cost[CHEAP[0]]) / cost[STEP[0]])
    assert rounds < 647  # what the order of STEP allows
    with ledger(old_file(tmp_path, "filter"), accountant="filter", expects=STEP) as account:
        assert account.charge(0, "a", CHEAP, replayable=True) == 0
        assert spend(account, range(1, 1000)) == rounds


def test_a_fixed_price_needs_no_expectation_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with ledger(path, expects=STEP) as account:
        account.charge(0, "a", STEP, replayable=True)
    assert path.read_text() == "".join(OLD["pld"])


@pytest.mark.parametrize("accountant", ["pld", "rdp", "filter"])
def test_what_is_shown_on_the_way_and_what_is_claimed(accountant: str) -> None:
    """Under a filter the display is less than the claim: the claim is the whole budget from the first release on."""
    account = ledger(accountant=accountant)
    assert account.epsilon() == account.epsilon_so_far() == 0
    for number in range(100):
        account.charge(number, "a", STEP, replayable=True)
    if accountant == "filter":
        assert account.epsilon_so_far() < account.epsilon() == 3.52
        assert account.epsilon_so_far() >= epsilon([Event(0.05, (2.0, 5.0), 100)], 1e-5, accountant="rdp")
    else:
        assert account.epsilon_so_far() >= account.epsilon()


def test_every_round_shows_an_upper_bound_within_the_budget() -> None:
    account = ledger()
    for number in range(763):
        account.charge(number, "a", STEP, replayable=True)
        if number % 97 == 0 or number == 762:
            assert account.epsilon() <= account.epsilon_so_far() <= min(3.52, 1.005 * account.epsilon())


def book(path: Path | None, budgets: dict[str, float | None], **changes: object) -> LedgerBook:
    settings = {"data": "d1", "config": "c1", "delta": 1e-5, "sync": False, **changes}
    return LedgerBook.open(path, budgets=budgets, **settings)


def test_clients_of_a_book_have_their_own_budgets_and_histories(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    budgets = {"a": 0.3, "b": 0.5, "c": None}
    with book(path, budgets) as clients:
        rounds = {name: spend(clients.ledger(name), range(20)) for name in budgets}
        assert rounds["a"] == 3 < rounds["b"] < rounds["c"] == 20
        assert clients.epsilon() == clients.ledger("c").epsilon() > clients.ledger("a").epsilon()
        assert clients.epsilon("replace-one") > clients.epsilon()
        assert clients.epsilon() <= clients.epsilon_so_far() <= 1.005 * clients.epsilon()
        with pytest.raises(RunError, match="client 'd'"):
            clients.ledger("d")
    with book(path, budgets) as clients:
        assert {name: len(list(clients.ledger(name).entries())) for name in budgets} == rounds
    for other in ({"a": 0.3, "b": 0.6, "c": None}, {"a": 0.3, "b": 0.5}):
        with pytest.raises(RunError, match=r"ledger of another (budget|clients)"):
            book(path, other)


def test_a_client_that_was_never_charged_costs_nothing_and_nobody_has_two_ledgers(tmp_path: Path) -> None:
    budgets = dict.fromkeys("abc", 2.0)
    step = (Event(0.1, (2.5,)),)
    for opened in range(2):
        with book(tmp_path / "ledger.jsonl", budgets) as clients:
            held = clients.ledger("a")
            assert clients.ledger("a") is held
            held.charge(opened, "r", step, replayable=True)
            del held
            gc.collect()
            assert len(clients.ledger("a").history) == 1  # it is kept though nobody holds it
            assert clients.ledger("a").history[0][2] == opened + 1
            never = weakref.ref(clients.ledger("b"))
            gc.collect()
            assert never() is None
            assert clients.ledger("b").epsilon() == 0.0
            assert list(clients.used()) == ["a"]
            assert clients.charged() == opened + 1


def test_thousands_in_step_cost_the_accounting_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = []
    original = pld.pld_epsilon
    monkeypatch.setattr(pld, "pld_epsilon", lambda *a, **k: composed.append(a) or original(*a, **k))
    base._priced.cache_clear()
    step = (Event(0.1, (2.5,)),)
    clients = book(None, {f"client {i}": 2.0 for i in range(1000)})
    rounds = 0
    while clients.ledger("client 0").afford(step):
        for i in range(1000):
            clients.ledger(f"client {i}").charge(rounds, "r", step, replayable=True)
        rounds += 1
    assert epsilon([Event(0.1, (2.5,), rounds)], 1e-5) <= 2.0 < epsilon([Event(0.1, (2.5,), rounds + 1)], 1e-5)
    assert rounds > 20
    assert 0 < len(composed) < 15


def test_only_the_dearest_histories_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = book(None, {f"client {i}": None for i in range(50)}, accountant="rdp")
    clients.ledger("client 0").charge_before("ranges", CHEAP)
    for i in range(50):
        clients.ledger(f"client {i}").charge(0, "r", (Event(0.05, (2.0,), i + 1),), replayable=True)
    exact = max(clients.ledger(f"client {i}").epsilon() for i in range(50))
    asked = []
    monkeypatch.setattr(Ledger, "epsilon", lambda ledger, *_: asked.append(ledger.client) or 1.0)
    clients.epsilon()
    assert asked == ["client 49", "client 0"]
    monkeypatch.undo()
    assert clients.epsilon() == exact
