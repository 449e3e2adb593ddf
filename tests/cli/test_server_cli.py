"""fedfdp server: whatever can be seen to be wrong is one line before it listens, not after hours of waiting."""

import json

import pytest
import tomli_w

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization

from fedfdp.deploy.local import free_port
from fedfdp.engines.flower.security import make_certificates, make_node_key, new_key


@pytest.fixture
def run_toml(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost"])
    make_certificates(tmp_path / "other", ["localhost"])
    make_node_key(tmp_path / "north.key")
    make_node_key(tmp_path / "south.key")
    (tmp_path / "junk").write_text("junk")
    locked = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "locked").write_bytes(new_key().private_bytes(*locked, serialization.BestAvailableEncryption(b"word")))

    def write(**changes):
        flower = {
            "address": f"127.0.0.1:{free_port()}", "wait": 1.0,
            "authority": "tls/ca.crt", "certificate": "tls/server.pem", "key": "tls/server.key",
            "nodes": {"north": "north.key.pub", "south": "south.key.pub"}, **changes,
        }  # fmt: skip
        about = {"data": {"source": "two hospitals"}, "privacy": {"epsilon": 3.0}, "flower": flower}
        (tmp_path / "run.toml").write_text(tomli_w.dumps(about))
        return tmp_path / "run.toml"

    return write


def refused(said, *words):
    code, out, err = said
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("fedfdp: ")
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"certificate": "junk"}, ("flower.certificate = ", "junk", "no PEM certificates")),
        ({"certificate": "nowhere.pem"}, ("flower.certificate = ", "nowhere.pem", "No such file")),
        ({"authority": "other/ca.crt"}, ("flower.certificate = ", "not signed by")),
        ({"authority": "junk"}, ("flower.authority = ", "no PEM certificates")),
        ({"key": "other/server.key"}, ("flower.key = ", "other/server.key", "not the key of")),
        ({"key": "nowhere.key"}, ("flower.key = ", "nowhere.key", "No such file")),
        ({"key": "junk"}, ("flower.key = ", "no private key in PEM")),
        ({"key": "locked"}, ("flower.key = ", "without a password")),
        ({"key": "tls"}, ("flower.key = ", "Is a directory")),
        ({"address": "127.0.0.1:99999"}, ("flower.address = ", "1 to 65535")),
        ({"address": "no-such-host.invalid:9092"}, ("flower.address = ", "cannot be listened on")),
        ({"register": "nowhere/nodes.json"}, ("flower.register = ", "there is no folder")),
        ({"register": "junk"}, ("flower.register = ", "is no list of nodes")),
        ({"revoked": ["nobody.pub"]}, ("flower.revoked = ", "nobody.pub", "No such file")),
        ({"revoked": ["north.key.pub"]}, ("flower.nodes.north = ", "revoked")),
        ({"nodes": {"north": "north.key.pub", "south": []}}, ("flower.nodes.south = []", "one key at least")),
    ],
)
def test_what_is_wrong_is_said_before_it_listens(changes, words, run_toml, fedfdp):
    refused(fedfdp("server", "--config", run_toml(**changes)), *words)


def test_a_certificate_that_ended_is_refused(run_toml, fedfdp, monkeypatch):
    from fedfdp.engines.flower import security

    path = run_toml()
    real = security.datetime.datetime

    class Later(real):
        @classmethod
        def now(cls, tz=None):
            return real.now(tz) + security.datetime.timedelta(days=security.DAYS + 1)

    monkeypatch.setattr(security.datetime, "datetime", Later)
    refused(fedfdp("server", "--config", path), "flower.certificate = ", "it ended on")


def test_a_certificate_may_be_signed_by_one_that_stands_beside_it(tmp_path):
    """As a hospital's own authority does it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    from fedfdp.core.errors import SettingError
    from fedfdp.engines.flower.security import Certificates, _builder, server_certificate

    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("root", "between", "server")]
    keys = [new_key() for _ in names]
    signed = [
        _builder(names[i], names[max(i - 1, 0)], keys[i].public_key(), 9).sign(keys[max(i - 1, 0)], hashes.SHA384())
        for i in range(3)
    ]
    root, between, server = (each.public_bytes(serialization.Encoding.PEM) for each in signed)
    files = Certificates(*(str(tmp_path / name) for name in ("ca", "server", "key")))
    (tmp_path / "ca").write_bytes(root)
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "key").write_bytes(keys[2].private_bytes(serialization.Encoding.PEM, *plain))
    (tmp_path / "server").write_bytes(server + between)
    assert server_certificate(files) == signed[2]
    (tmp_path / "server").write_bytes(server)
    with pytest.raises(SettingError, match="not signed by"):
        server_certificate(files)


def test_its_folder_is_looked_at_before_nodes_come(run_toml, fedfdp, tmp_path):
    refused(fedfdp("server", "--config", run_toml(), "--resume", "runs/nope"), "runs/nope is not a run folder")
    refused(fedfdp("server", "--config", run_toml(), "--out", tmp_path / "tls"), "is not an empty folder")


def test_a_finished_run_that_is_resumed_is_no_fault(run_toml, fedfdp, tmp_path):
    """Its systemd unit would start it again, up to 50 times a day."""
    done = tmp_path / "runs" / "first"
    done.mkdir(parents=True)
    (done / "run.json").write_text("{}")
    (done / "summary.json").write_text('{"rounds": 3}')
    code, out, err = fedfdp("server", "--config", run_toml(), "--resume", done)
    assert (code, out) == (0, "")
    assert f"{done} is finished" in err
    assert "listening" not in err
    code, out, _ = fedfdp("server", "--config", run_toml(), "--resume", done, "--json")
    assert (code, json.loads(out)) == (0, {"rounds": 3})
