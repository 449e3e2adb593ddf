"""Keys that change and certificates that are renewed, over TLS on loopback, in one process."""

from contextlib import contextmanager

import httpx
import pytest

pytest.importorskip("flwr")
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedfdp.core.errors import SettingError
from fedfdp.deploy.local import free_port
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Answer
from fedfdp.engines.flower.roster import Roster
from fedfdp.engines.flower.security import key_bytes, make_certificates, make_node_key, read_private_key
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import listening, registered
from fedfdp.engines.flower.worker import Connection


def settings(tmp_path, tls, nodes, **others):
    made = {"authority": "ca.crt", "certificate": "server.pem", "key": "server.key"}
    paths = {name: str(tmp_path / tls / file) for name, file in made.items()}
    return Flower(address=f"127.0.0.1:{free_port()}", nodes=nodes, **paths, **others)


@contextmanager
def connected(server, authority, key):
    private = read_private_key(key)
    public = private.public_key()
    calls = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(private, public)]
    with FleetHttpClient.from_server_address(server.address, False, str(authority), calls) as client:
        yield Connection(client, key_bytes(public), register=False)


@pytest.fixture
def place(tmp_path):
    make_certificates(tmp_path / "tls", ["127.0.0.1"])
    for name in ("old", "new"):
        make_node_key(tmp_path / f"{name}.key")
    return tmp_path


def test_both_keys_are_one_node_while_it_changes_them_and_then_the_old_one_is_shut_out(place):
    both = settings(place, "tls", {"north": (str(place / "old.key.pub"), str(place / "new.key.pub"))})
    with listening(both) as link:
        assert set(link.owners.values()) == {"north"}
        for name in ("old", "new"):
            with connected(both, place / "tls" / "ca.crt", place / f"{name}.key") as found:
                assert link.owners[found.node.node_id] == "north"
    alone = settings(place, "tls", {"north": str(place / "new.key.pub")})
    with listening(alone):
        with connected(alone, place / "tls" / "ca.crt", place / "new.key"):
            pass
        with pytest.raises(httpx.HTTPStatusError), connected(alone, place / "tls" / "ca.crt", place / "old.key"):
            pass


def test_a_node_that_comes_with_its_other_key_says_hello_again():
    class Nodes(Exchange):
        here = frozenset({1})

        def present(self):
            return self.here

        def ask(self, questions, **_):
            asked.extend(questions)
            return iter([(node, Answer("refused", "", 0, "try")) for node in questions])

    asked: list[int] = []
    exchange = Nodes(None, {"north": 1}, owners={1: "north", 2: "north"})
    roster = Roster(("north",), exchange, hellos={"north": object()})
    roster.refresh()
    assert asked == []
    exchange.here = frozenset({2})
    roster.refresh()
    assert asked == [2]


def test_a_revoked_key_is_refused_wherever_it_is_listed(place):
    given = Flower(nodes={"north": str(place / "old.key.pub")}, revoked=(str(place / "old.key.pub"),))
    with pytest.raises(SettingError, match=r"flower.nodes.north .* this key is revoked"):
        registered(given)
    same = Flower(nodes={"north": str(place / "new.key.pub"), "south": str(place / "new.key.pub")})
    with pytest.raises(SettingError, match=r"flower.nodes.south .* north has the same key"):
        registered(same)


def test_a_file_with_both_authorities_serves_the_old_and_the_new_certificate(place):
    make_certificates(place / "next", ["127.0.0.1"])
    bundle = place / "ca.crt"
    bundle.write_bytes((place / "tls" / "ca.crt").read_bytes() + (place / "next" / "ca.crt").read_bytes())
    for tls in ("tls", "next"):
        server = settings(place, tls, {"north": str(place / "new.key.pub")})
        with listening(server), connected(server, bundle, place / "new.key"):
            pass
    with (
        listening(server),
        pytest.raises(httpx.ConnectError),
        connected(server, place / "tls" / "ca.crt", place / "new.key"),
    ):
        pass
