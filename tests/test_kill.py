"""SIGKILL at random instants of a run; the script with all of them is scripts/kill_test.py."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfdp.runs.folder import RunFolder

SCRIPT = Path(__file__).parents[1] / "scripts" / "kill_test.py"
sys.path.insert(0, str(SCRIPT.parent))
import kill_test  # noqa: E402

sys.path.pop(0)


def test_killed_runs_never_under_count_and_go_on_to_the_same_bits():
    assert kill_test.trials(2, seed=1, jobs=1)["kills"] == 2


@pytest.mark.slow
def test_the_script_says_what_it_found():
    done = subprocess.run([sys.executable, SCRIPT, "--kills", "16", "--seed", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the ledgers cover them") == 16
    assert "16 kills over" in done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [["algorithm.name=mrmtl"], ["model.name=mlp", 'model.own=["3"]']], ids=["mrmtl", "own head"]
)
def test_models_of_the_holders_own_survive_a_kill(tmp_path, settings):
    """A run is killed after its second evaluation; resumed, every holder's model has the bits of a run left alone."""
    chosen = ["rounds=60", "eval_every=5", "threads=1", "privacy.sigma=4", "privacy.epsilon=20", *settings]
    overrides = [word for item in chosen for word in ("--set", item)]
    command = [sys.executable, "-c", "from fedfdp.cli.main import main; main()", "run"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*command, "digits", *overrides, "--out", str(whole)], check=True, capture_output=True)
    with subprocess.Popen([*command, "digits", *overrides, "--out", str(cut)], stdout=subprocess.DEVNULL) as child:
        while child.poll() is None and len(RunFolder(cut).metrics()) < 2:
            time.sleep(0.02)
        child.kill()
    assert not RunFolder(cut).finished, "it was over before it could be killed"
    subprocess.run([*command, "--resume", str(cut)], check=True, capture_output=True)
    own = RunFolder(whole).own_models()
    assert len(own) == len(RunFolder(cut).own_models()) > 1
    for name, file in RunFolder(cut).own_models().items():
        assert file.read_bytes() == own[name].read_bytes()


def test_the_check_notices_a_missing_charge(tmp_path):
    """A ledger that was cut back to before its last rounds is refused, not believed."""
    kill_test.run(tmp_path / "run", resume=False)
    assert kill_test.check(tmp_path / "run") == kill_test.ROUNDS
    ledger = tmp_path / "run" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:-8]))
    with pytest.raises(Exception, match=r"ledger|truncat"):
        kill_test.check(tmp_path / "run")


def test_a_run_that_ends_on_another_day_is_the_same_run(tmp_path):
    """A statement has the day on which it was written: the script once ran past midnight and took that for a fault."""
    kill_test.run(tmp_path / "run", resume=False)
    before, page = kill_test.outcome(tmp_path / "run"), tmp_path / "run" / "privacy.json"
    stated = json.loads(page.read_text())
    page.write_text(json.dumps({**stated, "date": "2020-01-01"}))
    assert kill_test.outcome(tmp_path / "run") == before
    page.write_text(json.dumps({**stated, "epsilon": stated["epsilon"] / 2}))
    assert kill_test.outcome(tmp_path / "run") != before
