"""A data holder's node, from its node.toml; to try things out, with a part of a run's data as its records."""

from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.engines.flower.holding import Holding, holding_of
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig, NodeData
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of


def open_node(config: NodeConfig) -> Node:
    """The node with its records read and its folder open."""
    return Node(config, own_records(config.name, config.data))


def own_records(name: str, data: NodeData) -> Holding:
    """The records of a holder of this name, from what its [data] says."""
    if data.config is None or data.part is None:
        return holding_of(name, data)
    whole = federation_of(configs.load(data.config))
    if whole.before:
        allowed = f"{data.config} estimates ranges, which no node can do by itself"
        raise SettingError("data.columns", "private", allowed, "give public ranges")
    if not 0 <= data.part < len(whole):
        raise SettingError("data.part", data.part, f"0 to {len(whole) - 1}: {data.config} has {len(whole)} clients")
    client = whole.clients[data.part]
    if client.name != name:
        raise SettingError("name", name, f"part {data.part} of {data.config} is {client.name!r}")
    name, unit, task = whole.name, whole.unit, whole.declared
    return Holding(Federation((client,), whole.classes, name, whole.x, whole.y, unit=unit, declared=task))
