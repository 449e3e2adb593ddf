"""The live page as people have it: in a real headless Chromium, also with a real run that is stopped and resumed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfdp.runs.folder import RunFolder
from fedfdp.watch.server import watching
from report.browser import Browser, find
from report.hostile import HOSTILE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="needs chromium, which is not installed: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _own_token(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def page(browser):
    """Opens the page of a folder; at the end nothing was said on the console, and nothing was asked of others."""
    browser.console.clear()
    browser.requests.clear()
    contexts, addresses = [], []

    def show(place: Path, *, look_only: bool = False, chart: bool = True, **options) -> Browser:
        contexts.append(watching(place, 0))
        server = contexts[-1].__enter__()
        addresses.append(server.address.partition("#")[0])
        if chart:
            browser.open(addresses[-1] if look_only else server.address, **options)
        else:
            browser.call("Page.navigate", url=server.address)
        return browser

    yield show
    browser.call("Page.navigate", url="about:blank")
    for context in contexts:
        context.__exit__(None, None, None)
    assert browser.console == []
    assert all(asked.startswith((*addresses, "blob:", "about:")) for asked in browser.requests)


def text(browser, selector):
    return browser.js(f"document.querySelector({json.dumps(selector)}).textContent").replace("\u00a0", " ")


def append(path, **changes):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(lines[-1]) | changes
    (path / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(entry)]) + "\n")


SPENT = {"epsilon": [1.0, 2.0, 1.5, 0.5], "budget": [3.5, 3.5, 3.5, 3.5]}


def test_the_page_follows_a_run_by_itself(page, write_run, say, at_work):
    path = write_run(finished=False)
    end = at_work(path)
    say(path, round=6, rounds=10, pace=2.0, spent=SPENT)
    b = page(path)
    assert text(b, "#state") == "running"
    assert text(b, "#pace") == "Round 6 of 10 · about 8 s left · 2.00 s a round"
    assert b.js("document.querySelector('#progress').value") == 0.6
    assert b.js("[...document.querySelectorAll('figure h3')].map(e => e.textContent)") == [
        "Test accuracy by round", "Ψ by round", "ε spent by round", "Test loss of each holder by round",
    ]  # fmt: skip
    row = b.js("[...document.querySelectorAll('#holders tbody tr')][1].innerText").replace("\u00a0", " ").split("\t")
    assert [row[0], row[1], *row[-3:]] == ["client-1", "13", "2.0000", "3.5", "57.14 %"]
    assert "57 % of the budget" in text(b, ".cards")

    # New numbers come without a reload; what the reader has opened, sorted and focused stays.
    b.js("document.querySelector('figure details').open = true")
    b.js("document.querySelectorAll('#holders thead button')[0].click()")
    b.js("document.querySelectorAll('#holders thead button')[0].click()")
    b.js("document.querySelector('figure .chart svg').focus()")
    b.js("window.mark = 1")
    append(path, round=8, accuracy=0.9876, loss=None)
    say(path, round=8, rounds=10, pace=2.0, spent=SPENT)
    b.wait("document.querySelector('#pace').textContent.startsWith('Round 8 of 10')")
    b.wait("document.querySelector('.cards').textContent.includes('98.76')")
    assert b.js("window.mark") == 1
    assert b.js("document.querySelectorAll('figure')[0].querySelectorAll('tbody tr').length") == 4
    assert b.js("document.querySelector('#holders tbody th').textContent") == "client-3"
    assert b.js("document.activeElement.tagName") == "svg"
    assert text(b, "#alarms").startswith("divergence: the loss is no number any more")
    assert b.js("document.title").startswith("8/10 run")

    end()
    b.wait("document.querySelector('#state').textContent.startsWith('gone without a word; continue with: fedfdp run')")
    assert b.js("document.querySelector('#stop').hidden")
    at_work(path)
    b.wait("document.querySelector('#state').textContent === 'running'")


def test_stopping_takes_two_clicks_and_the_printed_address(page, write_run, say, at_work):
    path = write_run(finished=False)
    at_work(path)
    say(path)
    b = page(path, look_only=True)
    assert b.js("document.querySelector('#stop').hidden")
    assert "can only look" in text(b, "footer")
    b = page(path)
    b.js("document.querySelector('#stop').click()")
    assert b.js("document.querySelector('dialog').open")
    assert b.js("document.activeElement.id") == "keep"
    b.key("Enter")
    b.wait("!document.querySelector('dialog').open")
    assert not RunFolder(path).stop_asked
    b.js("document.querySelector('#stop').click()")
    b.js("document.querySelector('#confirm').click()")
    b.wait("document.querySelector('#state').textContent === 'stopping after this round'")
    assert RunFolder(path).stop_asked
    assert b.js("document.querySelector('#stop').hidden")


def test_nodes_and_hostile_names(page, write_run, say, at_work):
    names = [HOSTILE, "\u202egnp", "south", "x" * 300]
    path = write_run(finished=False, elsewhere=True, names=names)
    at_work(path)
    standing = {
        HOSTILE: {"state": "here", "why": "", "round": 6},
        "\u202egnp": {"state": "late", "why": "no answer within 60 seconds", "round": 5},
        "south": {"state": "refused", "why": f"policy.max_q = 0.01 {HOSTILE}", "round": 6},
        "x" * 300: {"state": "out of budget", "why": "its budget is spent", "round": 4},
    }
    say(path, standing=standing, quorum=3, took_part=1, spent=SPENT)
    b = page(path, width=360, height=740)
    assert b.js("document.documentElement.scrollWidth") <= 360
    cells = b.js(
        "[...document.querySelectorAll('#holders tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert [row[1] for row in cells] == ["here", "late", "refused", "out of budget"]
    assert cells[2][2] == f"policy.max_q = 0.01 {HOSTILE}"
    said = b.js("[...document.querySelectorAll('.alarm')].map(e => e.textContent)")
    assert [line.partition(":")[0] for line in said] == ["dropouts", "dropouts", "budget"]
    assert said[1] == "dropouts: a round needs 3 nodes: the run waits for them, and ends if they stay away"
    assert "1 of 4" in text(b, ".cards")
    assert b.js("document.querySelectorAll('main script, main img').length") == 0
    heads = b.js("[...document.querySelectorAll('#holders thead th')].map(e => e.textContent)")
    assert "ε by its policy" in heads


def test_many_runs_and_one_that_begins_later(page, tmp_path, write_run):
    (tmp_path / "store").mkdir()
    b = page(tmp_path / "store", chart=False)
    b.wait("document.querySelector('#state')?.textContent.startsWith('There is no run here yet')")
    write_run("store/a")
    b.wait("document.querySelector('#state').textContent === 'finished'")
    write_run("store/b", finished=False)
    b.wait("document.querySelectorAll('#picker option').length === 2")
    choices = b.js("[...document.querySelectorAll('#picker option')].map(o => o.value)")
    assert choices == ["a", "b"]
    b.js(
        "(() => { const p = document.querySelector('#picker'); p.value = 'a'; p.dispatchEvent(new Event('change')) })()"
    )
    b.wait("location.search === '?run=a' && document.querySelector('h1')?.textContent === 'a'")
    assert b.js("location.hash").startswith("#stop=")
    assert b.js("document.querySelector('#report').getAttribute('href')") == "report?run=a"
    b.wait("document.querySelector('#state').textContent === 'finished'")


CONFIG = """
rounds = {rounds}
eval_every = 2
[data]
source = "digits"
clients = 4
[model]
name = "slow_model:Slow"
[privacy]
epsilon = 100.0
sigma = 4.0
q = 0.05
"""


@pytest.fixture
def start(tmp_path):
    """Starts a command as a process of its own, with `--watch`, in a folder that has a slow model and its config."""
    (tmp_path / "slow_model.py").write_text(
        "import time, torch\n"
        "class Slow(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.02)\n"
        "        return self.layer(x.flatten(1))\n"
    )
    (tmp_path / "run.toml").write_text(CONFIG.format(rounds=4000))
    paths = [str(tmp_path), str(Path(__file__).parents[2] / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    started = []

    def start(*arguments):
        command = [sys.executable, "-c", "from fedfdp.cli.main import main; main()", *arguments, "--watch"]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def follow(browser):
    """Opens the address that a process prints; at the end nobody may answer it any more."""

    def follow(process):
        address = re.search(r"http\S+", process.stderr.readline()).group()
        browser.call("Page.navigate", url=address)
        return re.search(r":(\d+)/", address).group(1)

    yield follow
    browser.call("Page.navigate", url="about:blank")
    time.sleep(0.1)
    browser.console.clear()  # of requests that nobody answered


def stop_from_the_page(browser):
    browser.js("document.querySelector('#stop').click()")
    browser.js("document.querySelector('#confirm').click()")


def test_a_real_run_is_stopped_from_the_page_and_resumed_under_it(browser, start, follow, tmp_path):
    """The page stays open: it sees the run end, and comes back by itself when the run is resumed."""
    first = start("run", "run.toml", "--out", "out", "--port", "0")
    port = follow(first)
    browser.wait("document.querySelector('#state')?.textContent === 'running'", 300)
    stop_from_the_page(browser)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "fedfdp: stopped as asked; continue with: fedfdp run --resume out" in said
    done = RunFolder(tmp_path / "out").live()
    assert (done["state"], 0 < done["round"] < 4000) == ("stopped", True)
    assert RunFolder(tmp_path / "out").privacy()["rounds"] == done["round"]
    browser.wait("document.querySelector('#state').textContent.startsWith('stopped as asked; continue with:')")
    browser.wait("!document.querySelector('#link').hidden")
    second = start("run", "--resume", "out", "--port", port)
    browser.wait("document.querySelector('#link').hidden", 300)
    browser.wait("document.querySelector('#state').textContent === 'running'", 300)
    browser.wait(f"Number(document.querySelector('#pace').textContent.split(' ')[1]) > {done['round']}", 60)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=120)
    assert second.returncode == 130


def test_a_deployment_is_shown_with_its_nodes_and_stopped(browser, start, follow, tmp_path):
    """Real nodes as processes: who is here and what each ledger has, while it goes on; then a safe stop."""
    pytest.importorskip("flwr")
    process = start("deploy", "local", "run.toml", "--nodes", "3", "--out", "out", "--port", "0")
    follow(process)
    browser.wait("document.querySelector('#state')?.textContent === 'running'", 300)
    states = "[...document.querySelectorAll('#holders tbody tr')].map(r => r.children[1].textContent).join()"
    browser.wait(f"{states} === 'here,here,here'", 120)
    heads = browser.js("[...document.querySelectorAll('#holders thead th')].map(e => e.textContent)")
    assert "ε by its policy" in heads
    stop_from_the_page(browser)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert "stopped as asked" in said
    done = RunFolder(tmp_path / "out").live()
    assert (done["state"], 0 < done["round"] < 4000) == ("stopped", True)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_has_names_for_everything(page, write_run, say, at_work, width, dark):
    path = write_run(finished=False, names=[f"hospital {i}" for i in range(30)], rounds=tuple(range(1, 12)))
    at_work(path)
    say(path, round=12, rounds=40, spent={"epsilon": [1.0] * 30, "budget": [3.5] * 30})
    b = page(path, width=width, height=850, dark=dark)
    assert b.js("document.documentElement.scrollWidth") <= width
    named = "e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length"
    assert b.js(f"[...document.querySelectorAll('button, select, progress, svg[role=img]')].every(e => {named})")
    assert b.js("['header', 'main', 'footer'].every(t => document.querySelectorAll('body > ' + t).length === 1)")
    assert not b.js("/NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert b.js(ground) == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
