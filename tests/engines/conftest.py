"""A deployment inside one process: real messages, real nodes with folders, no network."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedfdp.data import Federation
from fedfdp.deploy.coordinator import Network, coordinate
from fedfdp.engines.flower.client_app import client_app
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig, NodeData, Policy
from fedfdp.engines.flower.settings import Flower
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of


@dataclass
class InProcessGrid(Grid):
    """Hands each message to its node's ClientApp and keeps the reply until it is asked for."""

    nodes: dict[int, Node]
    tamper: Callable[[Node, Message, Message], Message | None] = lambda node, message, reply: reply
    replies: dict[str, Message] = field(default_factory=dict)
    sent: int = 0

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.sent += 1
            message.metadata.__dict__["_message_id"] = str(self.sent)
            node = self.nodes[message.metadata.dst_node_id]
            context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
            reply = client_app(lambda _, node=node: node)(message, context)
            if (reply := self.tamper(node, message, reply)) is not None:
                self.replies[str(self.sent)] = reply
            ids.append(str(self.sent))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


TINY = [
    "data.source=digits",
    "data.clients=3",
    "data.beta=1.0",
    "data.fraction=0.2",
    "model.name=linear",
    "fused=false",
    "threads=1",
    "rounds=3",
    "eval_every=1",
    "privacy.sigma=2.0",
    "privacy.q=0.1",
    "privacy.epsilon=8",
]


@dataclass
class Deployment:
    """Nodes in folders below `base`, and the runs they are asked to take part in."""

    base: Path
    config: configs.Config
    policy: Policy
    settings: Flower
    federation: Federation
    nodes: dict[int, Node] = field(default_factory=dict)
    grid: InProcessGrid | None = None
    widths: dict[str, float] = field(default_factory=dict)  # what nodes declare

    def start(self) -> InProcessGrid:
        for number, client in enumerate(self.federation.clients):
            self.start_node(number + 100, client.name)
        self.grid = InProcessGrid(dict(self.nodes))
        return self.grid

    def start_node(self, node_id: int, name: str) -> Node:
        client = next(c for c in self.federation.clients if c.name == name)
        whole = self.federation
        alone = Federation((client,), whole.classes, whole.name, whole.x, whole.y)
        folder = str(self.base / name)
        about = NodeConfig(name, "127.0.0.1:1", folder, NodeData(file="-"), plain_text=True, policy=self.policy)
        about = replace(about, width=self.widths.get(name, 1.0))
        self.nodes[node_id] = Node(about, alone)
        return self.nodes[node_id]

    def run(self, **kwargs: Any) -> Any:
        assert self.grid is not None
        return coordinate(self.config, self.settings, Network(self.grid, {}), **kwargs)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.book.close()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterable[Callable[..., Deployment]]:
    """Makes deployments of three nodes on digits; overrides as on the command line."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    made = []

    def make(
        *overrides: str, policy: Policy | None = None, widths: dict[str, float] | None = None, **flower: Any
    ) -> Deployment:
        config = configs.load("digits", [*TINY, *overrides])
        federation = federation_of(config)
        names = {client.name: "" for client in federation.clients}
        settings = replace(Flower(nodes=names, unsafe_seeded=True, deadline=20.0, wait=5.0), **flower)
        policy = policy or Policy(epsilon=8.0, max_q=0.2, evaluate=True, unsafe_seeded=True, without_privacy=True)
        base = tmp_path / f"nodes-{len(made)}"
        made.append(Deployment(base, config, policy, settings, federation, widths=widths or {}))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()
