"""The example of a method of one's own: its numbers by hand, and picked up by the command line."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedfdp.core.errors import SettingError
from fedfdp.privacy.dpsgd import DPSGD
from rounds import flat, linear, play
from support import Given

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def own():
    spec = importlib.util.spec_from_file_location("own_method", EXAMPLES / "own_method.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_method"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["own_method"]


def test_momentum_by_hand(two_clients, own):
    # b: gradients u/2. u 1 → 1 − 0.1·0.5; v = ½·0.5 + 0.475 = 0.725 → 0.95 − 0.0725
    method = own.MyMethod(lr=0.1, beta=0.5, local_steps=2)
    first = play(method, two_clients, linear(1, 0), present=lambda client, _: client == "b")
    assert first.weights == pytest.approx([0.8775, 0.0], abs=1e-6)
    assert flat(first.memories["b"].v) == pytest.approx([0.725, 0.0], abs=1e-6)
    # the next round goes on with it: v = ½·0.725 + 0.43875
    one = own.MyMethod(lr=0.1, beta=0.5, local_steps=1)
    second = play(one, two_clients, linear(1, 0), after=first, present=lambda client, _: client == "b")
    assert second.weights[0] == pytest.approx(0.8775 - 0.1 * (0.3625 + 0.43875), abs=1e-6)


def test_private_by_asking_the_same_way(two_clients, own):
    privacy = DPSGD(delta=1e-5, epsilon=100.0, sigma=2.0, q=1.0, clip=1.0, sigma_loss=5.0)
    played = play(own.MyMethod(lr=0.5), two_clients, linear(1, 0), privacy=privacy, randomness=Given(0.1))
    assert flat(played.memories["a"].v) == pytest.approx([0.6, -0.4], abs=1e-6)  # clipped, noised, over q·n


def test_a_setting_out_of_range_is_named(own):
    with pytest.raises(SettingError, match=r"algorithm.beta = 1.0: at least 0, below 1"):
        own.MyMethod(beta=1.0)


def test_the_command_line_picks_it_up(tmp_path):
    command = [str(Path(sys.executable).with_name("fedfdp")), "run", "digits", "--json", "--out", str(tmp_path / "run")]
    for setting in ("algorithm.name=own_method:MyMethod", "algorithm.beta=0.5", "rounds=2", "data.fraction=0.3"):
        command += ["--set", setting]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["algorithm"], summary["rounds"]) == ("own_method:MyMethod", 2)
    assert "beta = 0.5" in (tmp_path / "run" / "config.toml").read_text()


def test_it_is_short_enough_to_read():
    assert len((EXAMPLES / "own_method.py").read_text().splitlines()) < 60
