"""A node whose records are in a table of its own: read as a run reads its files, and trained on in this process."""

import numpy as np
import pytest
import torch

from fedfdp.core.errors import DataError, SettingError
from fedfdp.deploy.coordinator import Network, coordinate
from fedfdp.deploy.node import open_node, own_records
from fedfdp.engines.flower.policy import NodeData, load_node
from fedfdp.engines.flower.settings import Flower
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch

NODE = """
name = "{name}"
server = "127.0.0.1:1"
folder = "state"
plain_text = true
[data]
file = "records.csv"
label = "bad"
classes = ["no", "yes"]
test = "held"
columns = {{ age = [0, 100], kind = ["x", "y"] }}
[policy]
max_q = 0.2
epsilon = 8.0
evaluate = true
unsafe_seeded = true
"""


def written(folder, rows, seed):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    ages = rng.integers(0, 100, rows)
    columns = zip(ages, rng.choice(["x", "y"], rows), np.where(ages > 50, "yes", "no"), strict=True)
    lines = [f"{age},{kind},{bad},{i % 4 // 3}" for i, (age, kind, bad) in enumerate(columns)]
    (folder / "records.csv").write_text("age,kind,bad,held\n" + "\n".join(lines) + "\n")
    (folder / "node.toml").write_text(NODE.format(name=folder.name))
    return folder


@pytest.fixture
def holders(tmp_path):
    return [written(tmp_path / "north", 80, seed=0), written(tmp_path / "south", 40, seed=1)]


def test_a_node_reads_its_own_table_by_its_public_facts(holders):
    config = load_node(holders[0] / "node.toml")
    federation = own_records(config.name, config.data).federation
    assert (len(federation), federation.input_shape, federation.classes) == (1, (3,), 2)
    assert (federation.clients[0].name, len(federation.clients[0].train), len(federation.clients[0].test)) == (
        "north",
        60,
        20,
    )
    age = int((holders[0] / "records.csv").read_text().splitlines()[1].split(",")[0])
    assert float(federation.x[0, 0]) == pytest.approx(age / 50 - 1, abs=1e-6)


def test_nodes_with_tables_train_as_one_process_with_all_of_them(holders, tmp_path, deployment):
    """The same records, seeds and settings: the deployment's weights are those of the simulation, bit for bit."""
    (tmp_path / "all").mkdir()
    for holder in holders:
        (tmp_path / "all" / f"{holder.name}.csv").write_text((holder / "records.csv").read_text())
    data = {"source": str(tmp_path / "all"), "label": "bad", "classes": ["no", "yes"], "test": "held"}
    values = {
        "rounds": 2,
        "fused": False,
        "threads": 1,
        "data": {**data, "columns": {"age": [0, 100], "kind": ["x", "y"]}},
        "model": {"name": "linear"},
        "algorithm": {"name": "fedavg", "lr": 0.5},
        "privacy": {"epsilon": 8.0, "sigma": 2.0, "q": 0.1},
    }
    nodes = {number + 100: open_node(load_node(holder / "node.toml")) for number, holder in enumerate(holders)}
    grid = type(deployment().grid)(nodes)
    settings = Flower(nodes={holder.name: "" for holder in holders}, unsafe_seeded=True, deadline=20.0, wait=5.0)
    apart = coordinate(configs.from_dict(values), settings, Network(grid, {}))
    for node in nodes.values():
        node.book.close()
    together = launch(configs.from_dict(values))
    assert apart.summary["accuracy"] == pytest.approx(together.summary["accuracy"])
    for name, weights in together.model.state_dict().items():
        assert torch.equal(weights, apart.model.state_dict()[name])


def test_what_a_node_refuses_of_its_owner(holders, tmp_path):
    path = str(holders[0] / "records.csv")
    with pytest.raises(SettingError, match=r"data.columns = 'private': across machines all nodes must scale alike"):
        NodeData(file=path, label="bad", classes=2, columns={"age": "private"})
    with pytest.raises(SettingError, match=r"data.classes = \('a', 'b'\): a loader gives class numbers"):
        NodeData(loader="m:f", classes=("a", "b"))
    about = {"label": "bad", "classes": ("no", "yes"), "columns": {"age": [0, 100]}, "ignore": ("held",)}
    mixed = NodeData(file=path, holder="kind", **about)
    with pytest.raises(DataError, match=r"records.csv, column 'kind': has rows of 'y'; this node is 'x'"):
        own_records("x", mixed)


def test_a_loss_of_the_coordinator_s_is_not_for_nodes():
    config = configs.load("digits", ["loss=m:f", "rounds=1"])
    with pytest.raises(SettingError, match=r"loss = 'm:f': not across machines"):
        coordinate(config, Flower(nodes={"a": ""}), Network(None, {}))
