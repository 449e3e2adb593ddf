"""Flower's SuperLink inside the coordinator's process: the nodes' API alone, over TLS, for registered keys only.

A stock SuperLink serves its control API on the same port, where whoever reaches it can register nodes and start runs.
Here nothing but the fleet API listens, and what arrives is counted before it is kept. The only file of a coordinator's
process that uses Flower's internals.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.server.superlink.linkstate import LinkState
from flwr.serverapp import Grid
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.config_loader import get_objectstore_linkstate_factories
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import HttpGrid
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint

from fedfdp.core.errors import RunError, SettingError
from fedfdp.engines.flower.security import Certificates, read_public_key, server_certificate
from fedfdp.engines.flower.settings import Flower, host_port

REQUEST_BYTES = 16 * 2**20  # Flower cuts arrays into pieces of 5 MiB
TASK_BEAT = 10.0  # seconds
IDLE = 75  # seconds after which an unused connection is closed: a node asks much more often, also over a bad line
HANDOVER = 1.0  # seconds in which a node is gone, when a new process of it takes over
EXPIRED = ErrorCode.MESSAGE_UNAVAILABLE  # the error of a question whose time is up


@dataclass
class Meter:
    """How many bytes each node sent since the round began, who sent too many, and when each was last heard of."""

    allowance: int = REQUEST_BYTES
    sent: dict[int, int] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    seen: dict[int, float] = field(default_factory=dict)  # by any request
    pulled: dict[int, float] = field(default_factory=dict)  # by asking for work

    def begin(self, allowance: int) -> None:
        self.allowance = allowance
        self.sent.clear()
        self.over.clear()

    async def __call__(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Called once the node's signature was verified, so that none can use up what another may send."""
        message = getattr(request.state, "protobuf_request", None)
        if message is not None and hasattr(message, "node"):
            node, call, now = message.node.node_id, request.url.path.rpartition("/")[2], time.monotonic()
            self.seen[node] = now
            if call == "pull-messages":
                self.pulled[node] = now
            elif call in ("push-messages", "push-object"):
                self.sent[node] = self.sent.get(node, 0) + message.ByteSize()
            if any(reply.metadata.src_node_id != node for reply in getattr(message, "messages_list", ())):
                return Response("a reply in another node's name", status_code=403)
            if self.sent.get(node, 0) > self.allowance:
                self.over.add(node)
                return Response("more bytes than the round allows", status_code=413)
        return await call_next(request)


async def _bounded(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Refuses a body that is too large, or of unknown length, before any of it is read."""
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > REQUEST_BYTES:
        return Response("request too large", status_code=413)
    return await call_next(request)


class _Direct:
    """Flower's runtime calls, answered in this process."""

    def __init__(self, state: LinkState, task: object) -> None:
        self.state, self.task = state, task

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802
        """The messages that have arrived whole. Flower would wait here for the rest, and all other nodes with it."""
        whole = [message for message in request.message_ids if self._whole(message)]
        if not whole:
            return PullAppMessagesResponse()
        arrived: PullAppMessagesResponse = runtime_handlers.pull_messages(
            PullAppMessagesRequest(message_ids=whole), self.state, self.task
        )
        return arrived

    def _whole(self, message_id: str) -> bool:
        reply = self.state.message_ins_id_to_message_res_id.get(message_id)
        if reply is None:
            return True  # there is none yet, or the SuperLink makes one itself: the node is gone, or the time is up
        tree = self.state.object_store.get_object_tree(reply)
        return all(self.state.object_store.get(part.object_id) for part in iterate_object_tree(tree))

    def __getattr__(self, call: str) -> Callable[[object], object]:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in call).lstrip("_")
        handler = getattr(runtime_handlers, name)
        return lambda request: handler(request, self.state, self.task)


class _LinkGrid(HttpGrid):  # type: ignore[misc]
    """Flower's grid without the detour over a socket."""

    def __init__(self, state: LinkState, task: object) -> None:
        super().__init__(token="in process")
        self._client = _Direct(state, task)


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink: the grid to send messages by, and the node id of each registered name.

    Flower makes a node id of each key: `owners` has all of them, also where a node has two keys while it changes them.
    """

    grid: Grid
    node_ids: dict[str, int]
    meter: Meter
    owners: dict[int, str] = field(default_factory=dict)


@contextmanager
def listening(settings: Flower) -> Iterator[SuperLink]:
    """The coordinator's SuperLink, as its settings say: TLS and registered keys, or plain text on this machine."""
    host, port = host_port("flower.address", settings.address)
    if settings.plain_text:
        with serving(host, port, certificates=None, keys={}) as link:
            yield link
        return
    certificates = certificates_of(settings)
    server_certificate(certificates)
    with serving(host, port, certificates=certificates, keys=registered(settings)) as link:
        yield link


def certificates_of(settings: Flower) -> Certificates:
    """The files of TLS, all of which have to be set."""
    for name in ("authority", "certificate", "key"):
        if getattr(settings, name) is None:
            raise SettingError(f"flower.{name}", None, "needed for TLS", "make one: fedfdp server --make-certificates")
    return Certificates(str(settings.authority), str(settings.certificate), str(settings.key))


def registered(settings: Flower) -> dict[bytes, str]:
    """Who is let in: the node of each public key, in the order of the nodes."""
    revoked = {read_public_key(Path(path), "flower.revoked"): path for path in settings.revoked}
    found: dict[bytes, str] = {}
    for name, paths in settings.keys().items():
        for path in paths:
            key = read_public_key(path, f"flower.nodes.{name}")
            if key in revoked:
                allowed = f"this key is revoked ({revoked[key]})"
                raise SettingError(f"flower.nodes.{name}", str(path), allowed, "list the node's new key instead")
            if found.setdefault(key, name) != name:
                raise SettingError(
                    f"flower.nodes.{name}", str(path), f"{found[key]} has the same key", "give each its own"
                )
    return found


@contextmanager
def serving(host: str, port: int, *, certificates: Certificates | None, keys: dict[bytes, str]) -> Iterator[SuperLink]:
    """A SuperLink while the block lasts. Without certificates: plain text, and any node is let in (loopback only)."""
    _, factory = get_objectstore_linkstate_factories(":flwr-in-memory:", NoOpFederationManager())
    state: LinkState = factory.state()
    owners = {state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0): name for key, name in keys.items()}
    node_ids = {name: node for node, name in reversed(owners.items())}  # the first of each, until it comes with another
    _let_back(state)
    meter = Meter()
    app = FastAPI(
        openapi_url=None,
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_bounded),
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
            Middleware(BaseHTTPMiddleware, dispatch=meter),
        ],
    )
    app.state.linkstate_factory = factory
    app.state.enable_supernode_auth = certificates is not None
    app.include_router(fleet_router)
    settings = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_keep_alive=IDLE,
        ssl_certfile=certificates.certificate if certificates else None,
        ssl_keyfile=certificates.key if certificates else None,
    )
    with _listening(uvicorn.Server(settings), f"{host}:{port}"), _running(state) as grid:
        yield SuperLink(grid, node_ids, meter, owners)


def _let_back(state: LinkState) -> None:
    """Lets a node in at once that was killed and starts again, or whose line was cut: its key is the proof.

    Flower would refuse it until the last heartbeat has run out. For a moment it counts as gone, so that whoever waits
    for an answer of the earlier process does so no longer.
    """
    activate = state.activate_node

    def again(node_id: int, heartbeat_interval: float) -> bool:
        if state.deactivate_node(node_id):
            time.sleep(HANDOVER)
        with state.lock:  # meanwhile a late heartbeat of the earlier process may have let it in, or a second request
            state.deactivate_node(node_id)
            return bool(activate(node_id, heartbeat_interval))

    state.activate_node = again


@contextmanager
def _listening(server: uvicorn.Server, address: str) -> Iterator[None]:
    def serve() -> None:
        with suppress(SystemExit):  # how uvicorn says that it cannot have the address
            server.run()

    thread = threading.Thread(target=serve, name="superlink", daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RunError(f"flower.address = {address!r} cannot be listened on; is the port taken?")
        time.sleep(0.02)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=5)


@contextmanager
def _running(state: LinkState) -> Iterator[Grid]:
    """A run of Flower's, kept alive by its heartbeat; its messages go through the grid."""
    run_id = state.create_run("fedfdp/fedfdp", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    (run,) = state.get_run_info(run_ids=[run_id])
    state.claim_task(run.primary_task_id)
    state.activate_task(run.primary_task_id)
    (run,) = state.get_run_info(run_ids=[run_id])
    (task,) = state.get_tasks(task_ids=[run.primary_task_id])
    # Flower gives a message the identity of the process that makes it
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task.task_id, run_id, SUPERLINK_NODE_ID
    grid = _LinkGrid(state, task)
    grid.set_run(run)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(TASK_BEAT):
            state.acknowledge_task_heartbeat(task.task_id)

    threading.Thread(target=beat, name="run heartbeat", daemon=True).start()
    try:
        yield grid
    finally:
        ended.set()
        state.finish_task(task.task_id, "completed", "")
