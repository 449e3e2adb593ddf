"""Folders that version 0.1.0 made: they open, go on, and never count less than was spent."""

import datetime
import math
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfdp.deploy.spending import EARLIER, spending
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import Policy
from fedfdp.privacy import Event, epsilon
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.register import register

OLD = Path(__file__).parent / "release_0_1_0" / "folders.tar.gz"
CHARGED = 3  # rounds that 0.1.0 answered, of q = 0.1 and σ = 2 each


@pytest.fixture
def old(tmp_path):
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"


def reopened(given, folder, policy):
    """The deployment with this folder as that of its first node."""
    (node_id, node), *_ = given.nodes.items()
    node.book.close()
    config = replace(node.config, folder=str(folder), policy=policy)
    given.nodes[node_id] = Node(config, node.federation, today=lambda: datetime.date(2027, 1, 1))
    given.grid.nodes = dict(given.nodes)
    return given.nodes[node_id]


@pytest.mark.parametrize("accountant", ["pld", "filter"])
def test_a_node_goes_on_where_it_was(accountant, old, deployment, tmp_path):
    policy = Policy(epsilon=8.0, max_q=0.2, evaluate=True, accountant=accountant)
    given = deployment(
        "data.clients=2", "algorithm.name=fedavg", "algorithm.lr=0.5", unsafe_seeded=False, policy=policy
    )
    folder = old / accountant / "client-0"
    node = reopened(given, folder, policy)
    assert node.book.charged() == CHARGED
    given.run(out=tmp_path / "run")
    assert node.book.charged() == CHARGED + 3
    claimed = epsilon([Event(0.1, (2.0,), CHARGED + 3)], 1e-5)
    assert node.ledger.epsilon() == (8.0 if accountant == "filter" else claimed)
    found = spending(folder)
    assert [(part.name == EARLIER, part.rounds) for part in found.runs] == [(True, 3), (False, 3)]
    said = {account["client"]: account for account in RunFolder.find(tmp_path / "run").privacy()["clients"]}
    assert math.isclose(said["client-0"]["epsilon"], node.ledger.epsilon())  # the new run states the old charges too


def test_a_period_counts_what_has_no_date(old, deployment):
    policy = Policy(epsilon=8.0, max_q=0.2, epsilon_per_period=epsilon([Event(0.1, (2.0,), CHARGED)], 1e-5) * 1.001)
    node = reopened(deployment("data.clients=2", policy=policy), old / "pld" / "client-0", policy)
    assert node.ledger.short_of([Event(0.1, (2.0,))]).endswith("in 2027")


@pytest.mark.parametrize("accountant", ["pld", "filter"])
def test_the_officer_finds_at_least_what_the_coordinators_run_cost(accountant, old):
    (records,) = register([old / f"run-{accountant}"])
    (entry,) = records.entries
    assert entry.epsilon >= epsilon([Event(0.1, (2.0,), CHARGED)], 1e-5) * 0.999
    assert RunFolder.find(old / f"run-{accountant}").finished
