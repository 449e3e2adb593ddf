"""A network that fails, packet by packet, and a short soak over it; the script with all of it is scripts/soak.py."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import bad_network  # noqa: E402

sys.path.pop(0)

needs_namespaces = pytest.mark.skipif(not bad_network.possible(), reason="no network namespaces, or no /dev/net/tun")
ECHO = """
import socket
with socket.create_server(("10.77.0.1", 9000)) as server:
    while True:
        link, _ = server.accept()
        link.sendall(link.recv(100))
        link.close()
"""
CALL = """
import socket, time
begun = time.monotonic()
with socket.create_connection(("10.77.0.1", 9000), 3) as link:
    link.sendall(b"word")
    print(link.recv(100).decode(), time.monotonic() - begun)
"""


@pytest.mark.slow
@needs_namespaces
def test_packets_are_late_and_a_node_that_is_cut_off_hears_nothing_until_it_is_back():
    network = bad_network.Network(latency=0.1)
    network.start(2)
    server = subprocess.Popen(bad_network.inside(bad_network.SERVER, [sys.executable, "-S", "-c", ECHO]))

    def call(node: int) -> subprocess.CompletedProcess[str]:
        command = bad_network.inside(bad_network.namespace(node), [sys.executable, "-S", "-c", CALL])
        return subprocess.run(command, capture_output=True, text=True)

    try:
        time.sleep(1)
        word, seconds = call(0).stdout.split()
        assert word == "word"
        assert float(seconds) >= 0.4  # two ways to connect, two to ask and be answered
        network.cut = {bad_network.address(0)}
        assert "timed out" in call(0).stderr
        assert call(1).returncode == 0
        network.cut = set()
        assert call(0).returncode == 0
        network.loss = 1.0
        assert "timed out" in call(1).stderr
    finally:
        server.kill()
        server.wait()
        network.stop()


@pytest.mark.slow
@needs_namespaces
def test_a_short_soak_ends_right(tmp_path):
    given = ["--out", str(tmp_path / "soak"), "--nodes", "4", "--rounds", "6", "--pace", "15", "--limit", "1500"]
    done = subprocess.run([sys.executable, SCRIPTS / "soak.py", *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == 6
    assert found["uploads"] >= 12  # a quorum of two in every round
