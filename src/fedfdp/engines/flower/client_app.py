"""A node as a Flower ClientApp, for a stock SuperNode. It is an entry point: nothing else imports it.

The SuperNode is started with `--node-config 'node="/path/node.toml"'`, and this module's `app` as the clientapp. It
begins a process for every message, and sends the text of an exception to the coordinator: none may leave this module.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedfdp.core.errors import RunError
from fedfdp.deploy.node import open_node
from fedfdp.engines.flower.messages import Answer, Question, reply_to
from fedfdp.engines.flower.node import STOPPED, Node, write_stop
from fedfdp.engines.flower.policy import load_node


def client_app(get_node: Callable[[Context], Node]) -> ClientApp:
    """A ClientApp that hands every kind of message to a node."""
    made = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        def answer(question: Question) -> Answer:
            return get_node(context).answer(question)

        return reply_to(message, answer)

    for register in (made.query, made.train, made.evaluate):
        register()(handle)
    return made


def opened(context: Context) -> Node:
    """The node of this SuperNode. One that was stopped raises before its records are looked at.

    Records that cannot be used would fail at every message: the first failure stops the node until its owner has
    looked. An error of the ledger is no error of records, and may be over soon: another message is being answered.
    """
    config = load_node(Path(str(context.node_config["node"])))
    folder = Path(config.folder)
    if (folder / STOPPED).exists():
        raise RunError(f"{config.name} answers nothing: read {folder / STOPPED}, and delete it")
    try:
        return open_node(config)
    except RunError:
        raise
    except Exception as error:
        write_stop(folder, f"opening the node: {type(error).__name__}")
        raise


app = client_app(opened)
