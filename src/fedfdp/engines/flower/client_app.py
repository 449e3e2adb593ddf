"""A node as a Flower ClientApp: for any SuperNode, and what `fedfdp node` itself answers with.

Under a stock SuperNode: `--node-config 'node="/path/node.toml"'`, and this module's `app` as the clientapp.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedfdp.core.errors import DataError
from fedfdp.engines.flower.messages import Answer, Question, pack, unpack
from fedfdp.engines.flower.node import COULD_NOT, Node
from fedfdp.engines.flower.policy import load_node

log = logging.getLogger("fedfdp.node")

MOST_BYTES = 2**31


def answer(node: Node, message: Message, *, limit: int = MOST_BYTES) -> Message:
    """The node's answer to a message; one that cannot be read is refused like any other."""
    try:
        question = unpack(Question, message.content, limit=limit)
    except DataError as error:
        reply = Answer("refused", "", -1, reason=str(error))
    except Exception:  # whatever a hostile sender made the parser do
        log.exception("a message that cannot be read")
        reply = Answer("refused", "", -1, reason=COULD_NOT)
    else:
        reply = node.answer(question)
    return Message(pack(reply), reply_to=message)


def client_app(get_node: Callable[[Context], Node]) -> ClientApp:
    """A ClientApp that hands every kind of message to a node."""
    made = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        return answer(get_node(context), message)

    for register in (made.query, made.train, made.evaluate):
        register()(handle)
    return made


def _node_of(context: Context) -> Node:
    return Node(load_node(Path(str(context.node_config["node"]))))


app = client_app(_node_of)
