"""fedfdp doctor: every fault that it is there for is found, named, and gives exit code 1."""

import datetime
import json
import os
import socket

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr")

from fedfdp.cli.main import app
from fedfdp.deploy import doctor
from fedfdp.deploy.doctor import examine
from fedfdp.deploy.local import free_port
from fedfdp.engines.flower.security import make_certificates, make_node_key
from fedfdp.privacy import Event
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.periods import Dates

ORDER = ["clock", "disk", "port", "certificate", "key", "data", "budget"]


@pytest.fixture
def node(tmp_path):
    """A node without fault, whose coordinator is away."""
    make_certificates(tmp_path, ["localhost"])
    make_node_key(tmp_path / "north.key")
    np.savez(tmp_path / "records.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2)
    return write(tmp_path)


def write(tmp_path, **changes):
    about = {
        "name": "north", "server": "localhost:1", "folder": "state", "key": "north.key", "certificate": "ca.crt",
        "data": {"file": "records.npz", "classes": 2}, "policy": {"epsilon": 1.0}, **changes,
    }  # fmt: skip
    (tmp_path / "node.toml").write_text(tomli_w.dumps(about))
    return tmp_path / "node.toml"


def states(path):
    return {finding.what: finding.state for finding in examine(path)}


def said(path, what):
    (line,) = [finding.said for finding in examine(path) if finding.what == what]
    return line


def test_a_node_without_fault(node):
    assert [finding.what for finding in examine(node)] == ORDER
    assert states(node) == {**dict.fromkeys(ORDER, "ok"), "port": "look"}
    assert "40 records can be read" in said(node, "data")


def charged(folder, date, rounds=1):
    folder.mkdir(exist_ok=True)
    dates = Dates(lambda: datetime.date.fromisoformat(date))
    about = {"data": "all records of north", "config": "all runs", "delta": 1e-5}
    with LedgerBook.open(folder / "ledger.jsonl", budgets={"north": 1.0}, dates=dates, **about) as book:
        for number in range(rounds):
            book.ledger("north").charge(number, "r", [Event(0.1, (2.0,))], replayable=False)


def test_faults_of_a_node(node, tmp_path, monkeypatch):
    os.chmod(tmp_path / "north.key", 0o644)
    assert "chmod 600" in said(node, "key")
    (tmp_path / "north.key").unlink()
    assert states(node)["key"] == "bad"
    (tmp_path / "records.npz").unlink()
    assert states(node)["data"] == "bad"
    charged(tmp_path / "state", "2999-01-01")
    assert "set the clock" in said(node, "clock")
    (tmp_path / "state" / "stopped").write_text("why")
    assert "read" in said(node, "state")
    assert states(write(tmp_path, server="no-such-host.invalid:9092"))["port"] == "bad"
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 5}))
    assert states(node)["disk"] == "bad"


def test_a_budget_that_is_used_up(node, tmp_path):
    charged(tmp_path / "state", "2026-01-01")
    assert states(node)["budget"] == "ok"
    charged(tmp_path / "other", "2026-01-01")
    write(tmp_path, folder="other", policy={"epsilon": 1.0, "epsilon_per_period": 1e-3})
    assert "no round like the last one fits" in said(node, "budget")


@pytest.mark.parametrize(("days", "state"), [(-1, "bad"), (20, "look"), (400, "ok")])
def test_a_certificate_that_ends(days, state, node, tmp_path):
    (tmp_path / "new").mkdir()
    make_certificates(tmp_path / "new", ["localhost"], days=days) if days > 0 else _ended(tmp_path / "new")
    write(tmp_path, certificate="new/ca.crt")
    assert states(node)["certificate"] == state


def _ended(folder):
    from fedfdp.engines.flower import security

    before = security._builder
    past = datetime.timedelta(days=30)

    def builder(subject, issuer, key, days):
        now = datetime.datetime.now(datetime.UTC)
        made = security.x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
        made = made.serial_number(security.x509.random_serial_number())
        return made.not_valid_before(now - past).not_valid_after(now - past / 2)

    security._builder = builder
    try:
        make_certificates(folder, ["localhost"])
    finally:
        security._builder = before


@pytest.fixture
def coordinator(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost"])
    make_node_key(tmp_path / "north.key")
    make_node_key(tmp_path / "south.key")
    return run_toml(tmp_path)


def run_toml(tmp_path, **changes):
    flower = {
        "address": f"127.0.0.1:{free_port()}",
        "authority": "tls/ca.crt", "certificate": "tls/server.pem", "key": "tls/server.key",
        "nodes": {"north": "north.key.pub", "south": "south.key.pub"}, **changes,
    }  # fmt: skip
    (tmp_path / "run.toml").write_text(
        tomli_w.dumps({"data": {"source": "two hospitals"}, "privacy": {"epsilon": 3.0}, "flower": flower})
    )
    return tmp_path / "run.toml"


def test_a_coordinator_and_its_faults(coordinator, tmp_path):
    assert set(states(coordinator).values()) == {"ok"}
    make_certificates(tmp_path / "other", ["localhost"])
    assert "not signed by" in said(run_toml(tmp_path, authority="other/ca.crt"), "certificate")
    assert "not the key of" in said(run_toml(tmp_path, key="other/server.key"), "certificate")
    twice = {"north": "north.key.pub", "south": "north.key.pub"}
    assert "has the same key" in said(run_toml(tmp_path, nodes=twice), "key")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert states(run_toml(tmp_path, address=f"127.0.0.1:{taken.getsockname()[1]}"))["port"] == "look"


def test_what_the_server_refuses_is_bad(coordinator, tmp_path):
    (tmp_path / "junk").write_text("junk")
    assert "flower.key" in said(run_toml(tmp_path, key="junk"), "certificate")
    assert "no private key" in said(run_toml(tmp_path, key="junk"), "certificate")
    assert "flower.certificate" in said(run_toml(tmp_path, certificate="junk"), "certificate")
    assert "is revoked" in said(run_toml(tmp_path, revoked=["south.key.pub"]), "key")
    assert "flower.revoked" in said(run_toml(tmp_path, revoked=["nobody.pub"]), "key")
    assert "there is no folder" in said(run_toml(tmp_path, register="nowhere/nodes.json"), "settings")
    assert "is no list of nodes" in said(run_toml(tmp_path, register="junk"), "settings")
    assert states(run_toml(tmp_path, register="nodes.json"))["settings"] == "ok"
    assert not (tmp_path / "nodes.json").exists()
    assert "flower.nodes" in said(run_toml(tmp_path, nodes={}), "settings")


def test_an_address_that_is_not_this_machines(coordinator, tmp_path):
    path = run_toml(tmp_path, address="no-such-host.invalid:9092")
    assert (states(path)["port"], "no such name" in said(path, "port")) == ("bad", True)
    path = run_toml(tmp_path, address="192.0.2.1:9092")
    assert (states(path)["port"], "taken" in said(path, "port")) == ("bad", False)


def test_a_certificate_that_is_none(node, tmp_path):
    (tmp_path / "junk").write_text("junk")
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        path = write(tmp_path, server=f"127.0.0.1:{there.getsockname()[1]}", certificate="junk")
        assert "certificate = " in said(path, "port")


def test_exit_codes_and_json(node, tmp_path, capsys):
    from typer.testing import CliRunner

    call = CliRunner().invoke
    assert call(app, ["doctor", str(node)]).exit_code == 0
    found = json.loads(call(app, ["doctor", str(node), "--json"]).stdout)
    assert [finding["what"] for finding in found] == ORDER
    (tmp_path / "north.key").unlink()
    assert call(app, ["doctor", str(node)]).exit_code == 1
    (tmp_path / "x.toml").write_text("a = 1")
    assert "neither a node's nor a coordinator's" in str(call(app, ["doctor", str(tmp_path / "x.toml")]).exception)
