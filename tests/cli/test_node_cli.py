"""fedfdp node: what is wrong with its settings is one line, and its log is for its owner alone."""

import logging
import os

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr")

from fedfdp.deploy import log
from fedfdp.engines.flower.security import make_certificates, make_node_key


@pytest.fixture
def node_toml(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost"])
    make_node_key(tmp_path / "north.key")
    np.savez(tmp_path / "records.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2)
    (tmp_path / "junk").write_text("junk")

    def write(**changes):
        about = {
            "name": "north", "server": "localhost:1", "folder": "state", "key": "north.key",
            "certificate": "tls/ca.crt", "data": {"file": "records.npz", "classes": 2},
            "policy": {"epsilon": 1.0}, **changes,
        }  # fmt: skip
        (tmp_path / "node.toml").write_text(tomli_w.dumps(about))
        return tmp_path / "node.toml"

    return write


@pytest.fixture
def stranded(monkeypatch):
    """A node that would try again for ever ends at once."""
    from fedfdp.engines.flower import worker

    monkeypatch.setattr(worker, "_orphaned", lambda parent: True)


def refused(said, *words):
    code, out, err = said
    assert (code, out) == (2, ""), err
    assert err.splitlines()[-1].startswith("fedfdp: ")
    assert all(word in err.splitlines()[-1] for word in words), err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": "localhost:abc"}, ("server = 'localhost:abc'", "1 to 65535")),
        ({"server": "localhost"}, ("server = 'localhost'", "host:port")),
        ({"server": "localhost:99999"}, ("server = 'localhost:99999'", "1 to 65535")),
        ({"threads": -1}, ("threads = -1", "1 to 1024")),
        ({"certificate": "junk"}, ("certificate = ", "junk", "no PEM certificates")),
        ({"certificate": "nowhere.crt"}, ("certificate = ", "nowhere.crt", "No such file")),
        ({"policy": {"min_sigma": 0}}, ("policy.min_sigma = 0", "1 is usual")),
    ],
)
def test_settings_that_are_wrong(changes, words, node_toml, fedfdp, stranded):
    refused(fedfdp("node", "--config", node_toml(**changes)), *words)


def test_a_node_is_not_told_to_leave_privacy_out(node_toml, fedfdp, stranded):
    _, _, err = fedfdp("node", "--config", node_toml(policy={"min_sigma": 0}))
    assert "[privacy]" not in err


@pytest.mark.parametrize("poll", ["-1", "0", "nan", "inf"])
def test_seconds_between_two_looks(poll, node_toml, fedfdp, stranded):
    refused(fedfdp("node", "--config", node_toml(), "--poll", poll), f"--poll = {float(poll)!r}", "above 0")


def modes(folder):
    return {path.name: oct(path.stat().st_mode & 0o777) for path in folder.glob("node.log*")}


@pytest.fixture
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_log_of_a_node_is_its_owners(node_toml, fedfdp, stranded, open_umask, tmp_path):
    fedfdp("node", "--config", node_toml(certificate="junk"))
    assert modes(tmp_path / "state") == {"node.log": "0o600"}


def test_the_log_is_rotated_and_older_files_stay_private(monkeypatch, open_umask, tmp_path):
    monkeypatch.setattr(log, "LOG_BYTES", 200)
    monkeypatch.setattr(log, "LOG_FILES", 2)
    (tmp_path / "node.log").write_text("of an earlier version, which left it to the umask\n")
    assert modes(tmp_path) == {"node.log": "0o644"}
    handler = log.PrivateLog(tmp_path / "node.log")
    assert modes(tmp_path) == {"node.log": "0o600"}
    for number in range(30):
        handler.emit(logging.LogRecord("fedfdp", logging.INFO, "", 0, f"line {number:02} {'.' * 40}", (), None))
    handler.close()
    assert modes(tmp_path) == dict.fromkeys(("node.log", "node.log.1", "node.log.2"), "0o600")
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())
    kept = "".join((tmp_path / name).read_text() for name in ("node.log.2", "node.log.1", "node.log"))
    assert [line[:7] for line in kept.splitlines()][-3:] == ["line 27", "line 28", "line 29"]
