"""SIGKILL at random instants of a run; the script with all of them is scripts/kill_test.py."""

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_check_notices_a_missing_charge(tmp_path):
    """A ledger that was cut back to before its last rounds is refused, not believed."""
    kill_test.run(tmp_path / "run", resume=False)
    assert kill_test.check(tmp_path / "run") == kill_test.ROUNDS
    ledger = tmp_path / "run" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:-8]))
    with pytest.raises(Exception, match=r"ledger|truncat"):
        kill_test.check(tmp_path / "run")
