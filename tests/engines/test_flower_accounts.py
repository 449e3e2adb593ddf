"""What the coordinator states of its nodes: never less than their ledgers claim, and where the two differ, both."""

import json
import sys
from dataclasses import replace

import pytest

from fedfdp.algorithms import FedAvg
from fedfdp.core.errors import DataError, RunError
from fedfdp.engines.flower import accounts
from fedfdp.engines.flower.accounts import Accounts
from fedfdp.engines.flower.engine import Arrivals, FlowerEngine
from fedfdp.engines.flower.exchange import NoAnswerError
from fedfdp.engines.flower.messages import Answer
from fedfdp.engines.flower.policy import Policy
from fedfdp.privacy import DPSGD
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.accounting.events import history_of, repeat
from fedfdp.privacy.ledger import Ledger
from fedfdp.runs.statement import statement

SECURE = Policy(epsilon=8.0, max_q=0.2)
FILTER = replace(SECURE, accountant="filter", algorithms=("fedavg", "ali_dpfl"))
ADAPTIVE = ["algorithm.name=ali_dpfl", "algorithm.lr=0.5", "algorithm.round_budget=3", "privacy.accountant=rdp"]
FEDAVG = ["algorithm.name=fedavg", "algorithm.lr=0.5"]


def stated(dep, folder):
    """The statement of a run; and what its nodes' ledgers claim, and its page."""
    summary = dep.run(out=folder).summary
    made = json.loads((folder / "privacy.json").read_text())
    assert summary["epsilon"] == made["epsilon"]
    claims = {node.name: node.ledger.epsilon() for node in dep.nodes.values()}
    return made, claims, (folder / "privacy.md").read_text()


def test_an_adaptive_run_states_what_its_nodes_filters_claim(deployment, tmp_path):
    made, claims, page = stated(deployment(*ADAPTIVE, policy=FILTER, unsafe_seeded=False), tmp_path / "run")
    assert set(claims.values()) == {8.0}
    assert made["epsilon"] == 8.0
    assert {c["client"]: c["epsilon"] for c in made["clients"]} == claims
    assert made["epsilon_replace_one"] is None  # a filter promises its budget for zero-out alone
    (remark,) = made["remarks"]
    assert remark.startswith("client-0, client-1, client-2: what was released costs ε = ")
    assert "a filter, which claims its whole budget, ε = 8.0000; the larger is stated" in remark
    assert remark in page
    assert "ε = 8.0000 at δ = 1e-05" in page


def test_a_filter_claims_its_budget_whatever_the_method(deployment, tmp_path):
    made, claims, _ = stated(deployment(*FEDAVG, policy=FILTER, unsafe_seeded=False), tmp_path / "run")
    assert made["epsilon"] == 8.0 == max(claims.values())
    released = epsilon([Event(0.1, (2.0,), 3)], 1e-5)
    assert f"what was released costs ε = {released:.4f} at δ = 1e-05 by pld" in made["remarks"][0]


def test_a_ledger_at_a_smaller_delta_claims_more_and_that_is_stated(deployment, tmp_path):
    strict = replace(SECURE, delta=1e-7)
    made, claims, _ = stated(deployment(*FEDAVG, policy=strict, unsafe_seeded=False), tmp_path / "run")
    one, other = (epsilon([Event(0.1, (2.0,), 3)], delta) for delta in (1e-5, 1e-7))
    assert one < other
    assert made["epsilon"] == pytest.approx(other, rel=1e-9)
    assert made["epsilon"] == pytest.approx(max(claims.values()), rel=1e-9)
    assert f"the node's own ledger claims ε = {other:.4f} at δ = 1e-07 by pld; the larger is stated" in str(made)


def test_where_both_are_the_same_there_is_nothing_to_remark(deployment, tmp_path):
    made, claims, _ = stated(deployment(*FEDAVG, policy=SECURE, unsafe_seeded=False), tmp_path / "run")
    assert made["epsilon"] == pytest.approx(max(claims.values()), rel=1e-12)
    assert made["remarks"] == []
    assert {c["budget"] for c in made["clients"]} == {8.0}


def test_a_filter_for_a_larger_delta_says_nothing_at_the_runs(deployment):
    dep = deployment(*FEDAVG, policy=replace(FILTER, delta=1e-3), unsafe_seeded=False)
    with pytest.raises(RunError, match=r"policy.delta does not allow delta = 1e-05: this ledger is a filter for 0.001"):
        dep.run()
    assert all(list(node.ledger.entries()) == [] for node in dep.nodes.values())


SPENT = {"history": [[0.1, 2.0, 3]], "accountant": "filter", "budget": 8.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"accountant": "pld"}, "its ledger counts by pld, and this method takes a filter"),
        ({"delta": 1e-4}, "a filter for delta = 0.0001, the run's is 1e-05"),
        ({"accountant": "paper"}, "impossible rule"),
        ({"accountant": ["filter"]}, "impossible rule"),
        ({"accountant": "antigravity:fly"}, "impossible rule"),
        ({"budget": 0}, "impossible rule"),
        ({"budget": float("inf")}, "impossible rule"),
        ({"budget": float("nan")}, "impossible rule"),
        ({"budget": None}, "malformed ledger report"),
        ({"delta": 1.0}, "impossible rule"),
        ({"history": [[0.1, 2.0]]}, "malformed ledger report"),
        ({"history": [[1.1, 2.0, 1]]}, "an impossible entry"),
        ({"more": 1}, "not history, accountant, budget and delta"),
    ],
)
def test_an_account_that_cannot_be_is_not_taken(said, wrong):
    book = accounts.Accounts(1e-5, "rdp", {"a": 8.0}, adaptive=True)
    with pytest.raises(DataError, match=wrong):
        book.report("a", json.dumps({**SPENT, **said}))
    assert book.spent == {}
    assert "antigravity" not in sys.modules  # a node names no code for the coordinator to run


@pytest.mark.parametrize("accountant", ["pld", "rdp", "filter"])
def test_the_claim_is_that_of_the_ledger_itself(accountant):
    events = (Event(0.05, (2.0, 5.0), 7), Event(0.05, (2.0,), 14))
    ledger = Ledger.open(
        None, client="a", data="d", config="c", budget=9.0, delta=1e-6, accountant=accountant, sync=False
    )
    ledger.charge(0, "r", events, replayable=False)
    said = {"history": history_of(events), "accountant": accountant, "budget": 9.0, "delta": 1e-6}
    spent = accounts.parse_spent(json.dumps(said), "rdp")
    assert spent.claim() == ledger.epsilon()
    assert spent.claim("replace-one") == ledger.epsilon("replace-one")
    assert accounts.parse_spent(json.dumps(spent.to_dict()), "rdp") == spent


PRICE = history_of([Event(0.1, (2.0,))])


def without_answers(dep, late, *kinds):
    """The node gets these questions, and its answers never arrive."""

    def lose(node, message, reply):
        return None if node.name == late and message.metadata.message_type in kinds else reply

    dep.grid.tamper = lose


def test_a_late_node_is_asked_what_it_has_spent_before_that_is_stated(deployment, tmp_path):
    dep = deployment(*FEDAVG, "rounds=2", "eval_every=2", policy=SECURE, unsafe_seeded=False, deadline=0.1)
    without_answers(dep, "client-0", "train")
    made, claims, _ = stated(dep, tmp_path / "run")
    assert claims["client-0"] == pytest.approx(epsilon([Event(0.1, (2.0,), 2)], 1e-5))
    assert {c["client"]: c["epsilon"] for c in made["clients"]} == pytest.approx(claims)
    assert made["remarks"] == []


def test_where_it_says_nothing_at_all_what_it_was_asked_counts_as_spent(deployment, tmp_path):
    dep = deployment(*FEDAVG, "rounds=2", "eval_every=2", policy=SECURE, unsafe_seeded=False, deadline=0.1, wait=0.5)

    def lost(update):
        if update.step.round == 1:
            raise KeyboardInterrupt

    without_answers(dep, "client-0", "train")
    with pytest.raises(KeyboardInterrupt):
        dep.run(out=tmp_path / "run", on_update=lost)
    ((name, [[*price, times]]),) = json.loads((tmp_path / "run" / "waiting.json").read_text()).items()
    assert (name, price) == ("client-0", [0.1, 2.0])  # asked again while there was no quorum, if the machine is slow
    without_answers(dep, "client-0", "train", "query")
    del dep.grid.nodes[100]
    dep.run(out=tmp_path / "run", resume=True)  # it is away
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    said = next(c["epsilon"] for c in made["clients"] if c["client"] == "client-0")
    assert said == pytest.approx(epsilon([Event(0.1, (2.0,), times)], 1e-5))
    assert said >= dep.nodes[100].ledger.epsilon() > 0
    assert made["remarks"] == ["client-0: was asked and did not answer: what that would have cost counts as spent"]


def test_an_answer_of_any_kind_says_what_was_spent():
    book = accounts.Accounts(1e-5, "pld", {"a": 8.0})
    engine = FlowerEngine.__new__(FlowerEngine)
    engine.accounts, engine.arrivals, engine.standing, engine.listener = book, Arrivals(None, "r"), {}, None
    book.asked(["a"], PRICE)
    engine._receive("a", 0, NoAnswerError("late"), {}, {})
    assert book.epsilon() == book.ledger("a").epsilon() == epsilon([Event(0.1, (2.0,))], 1e-5)
    said = json.dumps({**SPENT, "accountant": "pld"})
    refusals = {}
    engine._receive("a", 0, Answer("refused", "r", 0, reason="stopped", spent=said), {}, refusals)
    assert refusals == {"a": "stopped"}
    assert book.epsilon() == book.ledger("a").epsilon() == epsilon([Event(0.1, (2.0,), 3)], 1e-5)


@pytest.mark.parametrize(("delta", "capped"), [(1e-2, False), (1e-6, True), (1e-8, True)])
def test_the_rest_of_a_plan_is_cut_to_a_nodes_budget_only_where_that_holds_at_the_runs_delta(delta, capped):
    """A run ends after 20 of 300 rounds: ε = 0.5 at δ = 1e-2 says nothing at 1e-6, at a smaller δ it says more."""
    method, planned = FedAvg(lr=0.1), 300
    private = DPSGD(epsilon=3.0, delta=1e-6, sigma=2.0, q=0.05, clip=1.0)
    step = method.events(None, private)
    said = Accounts(private.delta, private.accountant, {"north": private.epsilon})
    history = [list(entry) for entry in history_of(repeat(step, 20))]
    said.report("north", json.dumps({"history": history, "accountant": "pld", "budget": 0.9, "delta": delta}))
    ahead = said.with_more(["north"], history_of(repeat(step, planned - 20)))
    made = statement(method, "fedavg", private, said, {"north": 1000}, rounds=20, repeatable=False, planned=planned,
                     ahead=ahead)  # fmt: skip
    whole = epsilon(repeat(step, planned), 1e-6)
    assert whole > 1.5
    assert made.epsilon == pytest.approx(0.9 if capped else whole, rel=1e-9)
