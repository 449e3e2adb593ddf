"""A node as a Flower ClientApp, for a stock SuperNode. It is an entry point: nothing else imports it.

The SuperNode is started with `--node-config 'node="/path/node.toml"'`, and this module's `app` as the clientapp.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedfdp.deploy.node import open_node
from fedfdp.engines.flower.messages import reply_to
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import load_node


def client_app(get_node: Callable[[Context], Node]) -> ClientApp:
    """A ClientApp that hands every kind of message to a node."""
    made = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        return reply_to(message, get_node(context).answer)

    for register in (made.query, made.train, made.evaluate):
        register()(handle)
    return made


app = client_app(lambda context: open_node(load_node(Path(str(context.node_config["node"])))))
