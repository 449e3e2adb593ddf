"""Reasons are short lines, and what they tell to do is never cut off."""

import pytest

from fedfdp.core.errors import RunError, SettingError
from fedfdp.engines.flower.messages import LONGEST_REASON, Answer, one_line


def test_what_is_too_long_keeps_its_beginning_and_its_end():
    long = "policy.x does not allow " + "7, " * 5000 + 'ask for accountant = "filter"'
    line = one_line(long)
    assert len(line) == LONGEST_REASON
    assert line.startswith("policy.x does not allow 7, 7")
    assert line.endswith('7, ask for accountant = "filter"')
    assert one_line(line) == line == Answer("refused", "r", 0, reason=long).reason
    assert one_line("a\n\tb\x1b[2J") == "a b [2J"
    just = "x" * LONGEST_REASON
    assert one_line(just) == just
    assert one_line(" " * 10**6 + "end") == "end"


def test_a_refused_round_names_what_to_ask_for(deployment, tmp_path):
    """Until now each reason was cut at 200 characters, in `a node with accountant = `."""
    first = ("algorithm.name=fedfdp", "algorithm.local_steps=2")
    dep = deployment(*first)
    dep.run(out=tmp_path / "first")
    other = deployment("algorithm.name=fedfdp", "algorithm.local_steps=17")
    other.stop()
    other.nodes.clear()
    other.base = dep.base
    dep.stop()
    other.start()  # on the ledgers of the first
    with pytest.raises(RunError, match="round 1 was refused") as refused:
        other.run(out=tmp_path / "second")
    assert str(refused.value).count('for a node with accountant = "filter"') == 3


@pytest.mark.parametrize("register", ["nowhere/nodes.json", "."])
def test_the_register_is_looked_at_before_anybody_is_asked(register, deployment, tmp_path):
    dep = deployment("algorithm.name=fedfdp", register=str(tmp_path / register))
    with pytest.raises(SettingError, match=r"flower\.register"):
        dep.run(out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert all(node.ledger.history == () for node in dep.nodes.values())


def test_the_folder_is_looked_at_before_anybody_is_asked(deployment, tmp_path):
    dep = deployment("algorithm.name=fedfdp")
    dep.grid = lambda: None  # whoever asks a node fails
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunError, match="is not an empty folder"):
        dep.run(out=tmp_path / "full")
    with pytest.raises(RunError, match="is not a run folder"):
        dep.run(out=tmp_path / "nope", resume=True)
