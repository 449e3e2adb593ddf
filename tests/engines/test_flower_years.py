"""Many runs over one set of nodes: one ledger at each, its charges named and dated, a budget for each year."""

import datetime
from dataclasses import replace

import pytest

pytest.importorskip("flwr")

from fedfdp.deploy.spending import spending
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import Policy

POLICY = Policy(epsilon=8.0, max_q=0.2, unsafe_seeded=True)


def test_two_runs_are_two_lines_of_the_register(deployment, tmp_path):
    given = deployment("rounds=2", policy=POLICY)
    given.run(out=tmp_path / "one")
    given.config = replace(given.config, seed=7)
    given.run(out=tmp_path / "two")
    name = given.federation.clients[0].name
    found = spending(given.base / name)
    assert [part.rounds for part in found.runs] == [2, 2]
    assert len({part.name for part in found.runs}) == 2
    assert {part.method for part in found.runs} == {given.config.algorithm.name}
    assert len(found.days) in (1, 2)  # it may be midnight


def test_a_year_that_is_used_up_is_said_and_the_next_one_goes_on(deployment, tmp_path):
    given = deployment("rounds=2", policy=replace(POLICY, epsilon_per_period=0.9))
    day = datetime.date(2026, 12, 31)
    for node_id, node in list(given.nodes.items()):
        node.book.close()
        given.nodes[node_id] = Node(node.config, node.federation, today=lambda: day)
    given.grid.nodes = dict(given.nodes)
    given.run(out=tmp_path / "one")
    charged = [node.book.charged() for node in given.nodes.values()]
    given.config = replace(given.config, seed=7, rounds=200)
    result = given.run(out=tmp_path / "two")
    assert result.summary["rounds"] < 200  # every node's year was used up
    spent = [node.ledger.dates.spent("2026-12-31") for node in given.nodes.values()]
    assert all(node.ledger.short_of([node.policy.dearest]) == "epsilon = 0.9 in 2026" for node in given.nodes.values())
    assert [sum(count for *_, count in history) for history in spent] > charged
    day = datetime.date(2027, 1, 1)
    given.config = replace(given.config, seed=8, rounds=2)
    assert given.run(out=tmp_path / "three").summary["rounds"] == 2
