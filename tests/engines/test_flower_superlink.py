"""The coordinator's SuperLink: a node that was killed is let in again, and connections outlast a bad line."""

import http.client
import socket
import threading
import time

import pytest

pytest.importorskip("flwr")
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedfdp.core.errors import DataError
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Question
from fedfdp.engines.flower.security import key_bytes, new_key
from fedfdp.engines.flower.superlink import serving
from fedfdp.engines.flower.worker import Connection


@pytest.fixture
def link():
    """A SuperLink on a free port of this machine, and the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving("127.0.0.1", port, certificates=None, keys={}) as link:
        yield link, port


def client_of(key, port: int) -> FleetHttpClient:
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    usual = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    return FleetHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [usual, signed])


def test_a_node_that_was_killed_is_let_in_again_before_its_heartbeat_has_run_out(link):
    superlink, port = link
    key = new_key()
    with client_of(key, port) as first, client_of(key, port) as second:
        killed = Connection(first, key_bytes(key.public_key()), register=True)  # never says that it leaves
        again = Connection(second, key_bytes(key.public_key()), register=False)
        assert again.node == killed.node
        assert again.receive() is None  # it is asked as before
        assert superlink.grid.get_node_ids() == [again.node.node_id]


def test_nobody_waits_for_the_answer_of_a_process_that_was_killed(link):
    superlink, port = link
    key = new_key()
    with client_of(key, port) as first, client_of(key, port) as second:
        killed = Connection(first, key_bytes(key.public_key()), register=True)

        def take_and_come_back() -> None:
            while killed.receive() is None:
                time.sleep(0.02)
            Connection(second, key_bytes(key.public_key()), register=False)

        node = threading.Thread(target=take_and_come_back)
        node.start()
        began = time.monotonic()
        questions = {killed.node.node_id: Question("hello", "r", "")}
        ((asked, answer),) = Exchange(superlink.grid).ask(questions, deadline=60.0, limit=1000)
        node.join()
    assert asked == killed.node.node_id
    assert isinstance(answer, DataError)
    assert "it is gone" in str(answer)
    assert time.monotonic() - began < 15


def test_a_heartbeat_of_the_earlier_process_does_not_keep_the_next_one_out(link):
    superlink, port = link
    key = new_key()
    with client_of(key, port) as first, client_of(key, port) as second, client_of(key, port) as third:
        killed = Connection(first, key_bytes(key.public_key()), register=True)
        beat = SendNodeHeartbeatRequest(node=killed.node, heartbeat_interval=30)
        late = threading.Timer(0.4, first.SendNodeHeartbeat, (beat,))
        other = threading.Timer(0.3, Connection, (third, key_bytes(key.public_key())), {"register": False})
        late.start()
        other.start()
        Connection(second, key_bytes(key.public_key()), register=False)
        late.join()
        other.join()
        assert superlink.grid.get_node_ids() == [killed.node.node_id]


@pytest.mark.slow
def test_a_connection_that_was_silent_for_longer_than_five_seconds_is_still_there(link):
    _, port = link
    line = http.client.HTTPConnection("127.0.0.1", port)
    for pause in (0, 6):
        time.sleep(pause)
        line.request("POST", "/v1/fleet/pull-messages", body=b"")
        line.getresponse().read()  # http.client raises RemoteDisconnected where the server has hung up
        assert line.sock is not None
