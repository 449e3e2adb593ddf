"""A node's connection: it asks the SuperLink for questions over TLS, signed with its key, and sends its answers.

It speaks Flower's fleet protocol and fetches no app: only installed code runs. The only file of a node's process that
uses Flower's internals.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedfdp.core.errors import RunError
from fedfdp.engines.flower.messages import reply_to
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig
from fedfdp.engines.flower.security import certificates_in, key_bytes, new_key, read_private_key

log = logging.getLogger("fedfdp.node")

HEARTBEAT = 10.0  # seconds
RETRY = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before the first, second, … attempt to connect again


class UnknownNodeError(RunError):
    """The coordinator does not know this node's key."""


class Connection:
    """An activated node at a SuperLink."""

    def __init__(self, client: FleetHttpClient, public_key: bytes, *, register: bool) -> None:
        self.client = client
        if register:
            with suppress(httpx.HTTPStatusError):  # it is registered already
                client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key))
        request = ActivateNodeRequest(public_key=public_key, heartbeat_interval=HEARTBEAT)
        self.node = NodeId(node_id=client.ActivateNode(request).node_id)

    def receive(self) -> Message | None:
        """The next question with all its parts, if there is one."""
        found = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return None
        run_id, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]
        message: Message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(self.client.PullObject, self.node, run_id),
            make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run_id),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def send(self, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            said = self.client.PushMessages(request)
            push = make_push_object_fn_protobuf(
                self.client.PushObject, self.node, reply.metadata.run_id, said.session_id
            )
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(said.objects_to_push))

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Sends heartbeats, also while a round is computed; at the end, says that the node leaves."""
        ended = threading.Event()

        def beat() -> None:
            request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT)
            while not ended.wait(HEARTBEAT * 0.7):
                with suppress(httpx.HTTPError):
                    self.client.SendNodeHeartbeat(request)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            with suppress(httpx.HTTPError):
                self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))


def serve(node: Node, *, poll: float = 0.5, parent: int | None = None, leave: threading.Event | None = None) -> None:
    """Answers questions for as long as the process lives, and connects again after the coordinator was away.

    With `parent`, it ends together with the process of that id. Once `leave` is set it ends too, after the question
    that it is busy with: that one is paid for, so its answer is sent.
    """
    leave = leave or threading.Event()
    config, failures, known = node.config, 0, False
    private = new_key() if config.key is None else read_private_key(Path(config.key))
    public = private.public_key()
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(private, public)]
    authority = None if config.plain_text else str(Path(config.certificate or ""))
    if authority is not None:
        certificates_in(Path(authority))  # read for its errors: what reads it below names neither setting nor path
    with FleetHttpClient.from_server_address(config.server, config.plain_text, authority, interceptors) as client:
        while True:
            try:
                connection = Connection(client, key_bytes(public), register=config.key is None)
                log.info("%s is connected to %s", node.name, config.server)
                failures, known = 0, True
                with connection.alive():
                    _attend(node, connection, poll=poll, parent=parent, leave=leave)
                return
            except (httpx.HTTPError, ObjectPullError) as error:
                _explain(error, config, known=known, first=not failures)
            if leave.wait(RETRY[min(failures, len(RETRY) - 1)]) or _orphaned(parent):
                return
            failures += 1


def _attend(node: Node, connection: Connection, *, poll: float, parent: int | None, leave: threading.Event) -> None:
    while not (leave.is_set() or _orphaned(parent)):
        message = connection.receive()
        if message is None:
            leave.wait(poll)
            continue
        _deliver(reply_to(message, node.answer), connection)


def _deliver(reply: Message, connection: Connection) -> None:
    """Sends an answer, and once more where the coordinator lost it halfway because it was restarted or slow.

    An undelivered answer does not end the node: the round is paid for, and asked again it sends the same bytes.
    """
    for last in (False, True):
        try:
            connection.send(reply)
            return
        except httpx.HTTPStatusError as error:  # too late, or the run is over
            log.warning("an answer was not taken: %s", error.response.text[:200])
            return
        except ObjectPushError as error:
            if last:
                log.warning("an answer was not taken: %s", error)


def _explain(error: Exception, config: NodeConfig, *, known: bool, first: bool) -> None:
    """Raises for what only a person can set right; everything else is tried again, also a coordinator that is away."""
    if isinstance(error, httpx.HTTPStatusError) and not known:
        raise UnknownNodeError(
            f"{config.server} does not let {config.name!r} in ({error.response.status_code}); "
            "give its coordinator the public key of this node"
        )
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise RunError(f"certificate = {config.certificate!r}: {config.server} is not signed by it; ask for its ca.crt")
    if first:
        log.warning("%s cannot be reached (%s); trying again", config.server, error)


def _orphaned(parent: int | None) -> bool:
    return parent is not None and os.getppid() != parent
