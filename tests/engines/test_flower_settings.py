"""host:port is read in one way, at nodes and at the coordinator."""

import pytest

from fedfdp.core.errors import SettingError
from fedfdp.engines.flower.policy import NodeConfig, NodeData
from fedfdp.engines.flower.settings import Flower, host_port

WRONG = [
    "localhost", "localhost:", "localhost:abc", "localhost:99999", "localhost:0", "localhost:-1", "localhost:٣",
    "localhost:" + "9" * 5000, ":9092", "", "::1:9092", "http://localhost:9092", "[]:9092", "local host:9092",
]  # fmt: skip


@pytest.mark.parametrize("address", WRONG)
def test_what_is_not_host_and_port_is_refused_on_both_sides(address):
    with pytest.raises(SettingError, match=r"^flower\.address = "):
        Flower(address=address)
    with pytest.raises(SettingError, match=r"^server = "):
        NodeConfig("n", address, "f", NodeData(file="d"), key="k", certificate="c")


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:1", ("localhost", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("[::1]:9092", ("::1", 9092)),
        ("coordinator.example.org:9092", ("coordinator.example.org", 9092)),
    ],
)
def test_host_and_port(address, parts):
    assert host_port("server", address) == parts
    assert Flower(address=address).address == address
