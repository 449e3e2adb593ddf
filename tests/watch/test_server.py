"""The server by its answers: what it shows, to whom, and who may stop a run."""

import http.client
import json
import re
import socket
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedfdp.core.errors import SettingError
from fedfdp.runs.folder import RunFolder
from fedfdp.watch import server as watch
from fedfdp.watch.server import MOST_VIEWERS, open_server, own_token, watching
from report.hostile import HOSTILE


@pytest.fixture(autouse=True)
def _own_token(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(watch, "TICK", 0.02)
    open_ones = []

    def begin(place):
        context = watching(place, 0)
        open_ones.append(context)
        return context.__enter__()

    yield begin
    for context in open_ones:
        context.__exit__(None, None, None)


def ask(server, path, method="GET", **headers):
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    link.request(method, path, headers=headers)
    answer = link.getresponse()
    body = answer.read().decode()
    link.close()
    return answer, body


def test_it_listens_on_this_machine_alone(serve, write_run):
    server = serve(write_run())
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/#stop={server.token}"


def test_the_page_is_whole_and_loads_nothing_else(serve, write_run):
    answer, page = ask(serve(write_run()), "/")
    assert answer.status == 200
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("connect-src 'self'; base-uri 'none'; form-action 'none'")
    assert "unsafe" not in policy
    assert set(re.findall(r"\w+://[\w.]+", page)) == {"http://www.w3.org"}
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_state_is_that_of_the_folder_and_follows_it(serve, write_run, say, at_work):
    path = write_run(finished=False, names=[HOSTILE, "b", "c", "d"])
    server = serve(path)
    state = json.loads(ask(server, "/state")[1])
    assert (state["id"], state["run"]["state"], state["runs"]) == ("run", "not running", [])
    assert state["run"]["clients"]["names"][0] == HOSTILE
    say(path, round=7)
    at_work(path)
    time.sleep(0.35)
    state = json.loads(ask(server, "/state")[1])
    assert (state["run"]["state"], state["run"]["round"]) == ("running", 7)


def test_a_folder_that_is_not_there_yet_is_waited_for(serve, tmp_path, write_run):
    server = serve(tmp_path / "run")
    server.board.notice = "1 of 3 nodes are here"
    assert json.loads(ask(server, "/state")[1]) == {
        "runs": [],
        "id": None,
        "run": None,
        "notice": "1 of 3 nodes are here",
    }
    assert ask(server, "/report")[0].status == 404
    write_run()
    time.sleep(0.35)
    assert json.loads(ask(server, "/state")[1])["run"]["state"] == "finished"
    assert "fedfdp report" in ask(server, "/report")[1]


def test_of_many_runs_the_one_that_goes_on_is_shown_first(serve, tmp_path, write_run, say, at_work):
    for name in ("store/a", "store/b", "store/c"):
        write_run(name, finished=name.endswith("c"))
    at_work(tmp_path / "store" / "b")
    server = serve(tmp_path / "store")
    state = json.loads(ask(server, "/state")[1])
    assert state["id"] == "b"
    assert [(run["name"], run["state"]) for run in state["runs"]] == [
        ("a", "not running"), ("b", "running"), ("c", "finished"),
    ]  # fmt: skip
    assert json.loads(ask(server, "/state?run=c")[1])["id"] == "c"
    for outside in ("../run", "/etc", "store/a", ""):
        assert json.loads(ask(server, f"/state?run={outside}")[1])["id"] in (None, "b")


def test_many_viewers_get_the_same_news(serve, write_run, say, at_work):
    path = write_run(finished=False)
    at_work(path)
    server, seen = serve(path), []

    def view():
        link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        link.request("GET", "/events")
        answer, rounds = link.getresponse(), []
        while not rounds or rounds[-1] != 9:
            line = answer.readline().decode()
            if line.startswith("data: "):
                rounds.append(json.loads(line[6:])["run"]["round"])
        seen.append(rounds[-1])
        link.close()

    viewers = [threading.Thread(target=view, daemon=True) for _ in range(20)]
    for viewer in viewers:
        viewer.start()
    say(path, round=9)
    for viewer in viewers:
        viewer.join(20)
    assert seen == [9] * 20


def test_too_many_viewers_are_told_so(serve, write_run):
    server = serve(write_run())
    for _ in range(MOST_VIEWERS):
        server.viewers.acquire()
    assert ask(server, "/events")[0].status == 503
    for _ in range(MOST_VIEWERS):
        server.viewers.release()


def test_the_numbers_for_prometheus(serve, tmp_path, write_run, say, at_work):
    path = write_run("store/a", finished=False, names=['say "hi"\n', "\\b"])
    write_run("store/b")
    say(path, round=3, rounds=10, pace=2.0, spent={"epsilon": [0.25, 0.5], "budget": [2.0, None]},
        standing={'say "hi"\n': {"state": "here", "why": ""}, "\\b": {"state": "late", "why": "x"}})  # fmt: skip
    at_work(path)
    answer, text = ask(serve(tmp_path / "store"), "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    run = ("run", "a")
    assert found["fedfdp_round", run] == 3
    assert found["fedfdp_seconds_left", run] == 14
    assert found["fedfdp_state", run, ("state", "running")] == 1
    assert found["fedfdp_state", run, ("state", "finished")] == 0
    assert found["fedfdp_state", ("run", "b"), ("state", "finished")] == 1
    assert found["fedfdp_client_epsilon", ("client", 'say "hi"\n'), run] == 0.25
    assert found["fedfdp_client_epsilon_budget", ("client", 'say "hi"\n'), run] == 2.0
    assert ("fedfdp_client_epsilon_budget", ("client", "\\b"), run) not in found  # it has none
    assert found["fedfdp_node_up", ("node", 'say "hi"\n'), run] == 1
    assert found["fedfdp_node_up", ("node", "\\b"), run] == 0
    assert found["fedfdp_alarm", ("kind", "dropouts"), run] == 1
    assert found["fedfdp_alarm", ("kind", "divergence"), ("run", "b")] == 0
    history = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert found["fedfdp_measure", ("measure", "psi"), run] == history[-1]["psi"]
    assert found["fedfdp_client_loss", ("client", "\\b"), run] == history[-1]["clients"]["loss"][1]


def test_other_sites_get_nothing(serve, write_run, at_work):
    path = write_run(finished=False)
    at_work(path)
    server = serve(path)
    here, token = f"127.0.0.1:{server.server_port}", server.token
    assert ask(server, "/", Host="evil.example")[0].status == 403  # a name that now points to this machine
    assert ask(server, "/metrics", Host=f"evil.example:{server.server_port}")[0].status == 403
    assert ask(server, "/state", Origin="http://evil.example")[0].status == 403
    assert ask(server, "/report", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})[0].status == 403
    assert ask(server, "/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0].status == 200
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0].status == 200
    for refused in (
        {},
        {"X-Fedfdp-Token": "guess"},
        {"X-Fedfdp-Token": token, "Origin": "http://evil.example"},
        {"X-Fedfdp-Token": token, "Host": "evil.example"},
        {"X-Fedfdp-Token": token, "Origin": "null"},
        {"X-Fedfdp-Token": token, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ):
        assert ask(server, "/stop?run=run", "POST", **refused)[0].status == 403
    assert ask(server, f"/stop?run=run&token={token}", "POST")[0].status == 403
    assert ask(server, "/stop?run=run", **{"X-Fedfdp-Token": token})[0].status == 404  # looking never stops
    assert not RunFolder(path).stop_asked
    assert token not in ask(server, "/")[1] + ask(server, "/state")[1] + ask(server, "/metrics")[1]
    answer, said = ask(server, "/stop?run=run", "POST", **{"X-Fedfdp-Token": token, "Origin": f"http://{here}"})
    assert (answer.status, json.loads(said)["said"]) == (202, "the run ends after the round that it is in")
    assert RunFolder(path).stop_asked


@pytest.mark.parametrize("length", ["-1", "much", "9" * 30])
def test_a_body_of_any_length_is_not_waited_for(serve, write_run, length):
    """Of −1 bytes the standard library reads until the sender ends, however much that is."""
    server = serve(write_run())
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as link:
        host = f"127.0.0.1:{server.server_port}"
        body = b"x" * 4096 if length.startswith("9") else b""
        link.sendall(f"POST /stop HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n".encode() + body)
        assert link.recv(100).startswith(b"HTTP/1.1 403")


def test_only_a_run_that_is_running_is_stopped(serve, write_run):
    path = write_run(finished=False)
    server = serve(path)
    allowed = {"X-Fedfdp-Token": server.token}
    assert ask(server, "/stop?run=run", "POST", **allowed)[0].status == 409
    assert ask(server, "/stop?run=../run", "POST", **allowed)[0].status == 404
    assert ask(server, "/stop", "POST", **allowed)[0].status == 404
    assert ask(server, "/else", "POST", **allowed)[0].status == 404
    assert not RunFolder(path).stop_asked


def test_ports(write_run):
    path = write_run()
    with (
        watching(path, 0) as first,
        pytest.raises(SettingError, match=rf"--port = {first.server_port}: cannot be listened on: .*; give another"),
    ):
        open_server(path, first.server_port)
    with pytest.raises(SettingError, match="--port = 99999: 0 to 65535"):
        open_server(path, 99999)


def test_a_token_lasts_and_is_for_its_owner_alone(tmp_path):
    file = tmp_path / "state" / "token"
    token = own_token(file)
    assert len(token) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert own_token(file) == token
    file.chmod(0o644)  # others may have read it
    assert own_token(file) != token
    assert file.stat().st_mode & 0o777 == 0o600
