"""A cluster that cannot be used is one line and exit code 2, and no folder is left behind."""

import socket
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")


@pytest.fixture
def silent(monkeypatch):
    """An address where nothing listens. Ray is not asked: it would wait there for minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **given: pytest.fail(f"asked Ray for {given}"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return f"127.0.0.1:{port}"


def test_nothing_answers(fedfdp, silent):
    for setting, command in {
        "ray.address": ("run", "digits", "--set", "engine=ray", "--set", f"ray.address={silent}"),
        "ray": ("reproduce", "table3", "--scale", "smoke", "--dataset", "mnist", "--ray", silent, "--save", "results"),
    }.items():
        code, out, err = fedfdp(*command)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith(f"fedfdp: {setting} = '{silent}': no cluster: nothing answers there (")
        assert err.endswith("start one: ray start --head\n")
    assert not list(Path.cwd().iterdir())


def test_too_few_cores(fedfdp, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])
    code, out, err = fedfdp("run", "digits", "--set", "engine=ray", "--set", "ray.workers=4")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("fedfdp: ray.workers = 4: the cluster has 2 cores")
    assert "set ray.workers=2" in err
    assert not list(Path.cwd().iterdir())
