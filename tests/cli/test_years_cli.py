"""The commands of docs/years.md for a node: its ledger, a backup, and what is declared after a restore."""

import json
import shutil

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

pytest.importorskip("flwr")

from fedfdp.cli.main import app
from fedfdp.deploy.node import open_node
from fedfdp.engines.flower.policy import load_node
from fedfdp.privacy import Event, epsilon


def said(*words):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_ledger_backup_and_restore(tmp_path):
    np.savez(tmp_path / "records.npz", x=np.zeros((40, 3), np.float32), y=np.arange(40) % 2)
    about = {"name": "north", "server": "127.0.0.1:1", "folder": "state", "plain_text": True}
    policy = {"epsilon": 1.0, "epsilon_per_period": 0.9}
    node = tmp_path / "node.toml"
    node.write_text(tomli_w.dumps({**about, "data": {"file": "records.npz", "classes": 2}, "policy": policy}))

    def spend(start):
        with open_node(load_node(node)) as opened:
            opened.ledger.run = "winter fedfdp"
            for number in range(start, start + 2):
                opened.ledger.charge(number, str(number), [Event(0.1, (2.0,))], replayable=False)
                opened.witness.follow()

    spend(0)
    assert "holds 2 charges" in said("node", "backup", node, "--out", tmp_path / "kept.tar.gz")
    spend(2)
    lines = said("node", "ledger", node).splitlines()
    assert lines.pop(1).endswith("whatever follows, ε = 1 holds")
    assert lines[1].endswith(f"winter fedfdp: 4 rounds, alone ε = {epsilon([Event(0.1, (2.0,), 4)], 1e-5):.4f}")
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["all together", lines[1].split("-")[0].strip()]
    found = json.loads(said("node", "ledger", tmp_path / "state", "--by", "date", "--json"))
    assert found["days"][0]["rounds"] == 4
    shutil.rmtree(tmp_path / "state")
    shutil.unpack_archive(tmp_path / "kept.tar.gz", tmp_path / "state", filter="data")
    assert said("node", "restored", node, "--by-witness").startswith("2 charges taken from the second copy, 0 assumed")
    assert "0 more like the last one fit" not in said("node", "ledger", node)
    assert "taken from the second copy" in said("node", "restored", node)
    assert said("node", "ledger", node).count("0 more like the last one fit") == 2
