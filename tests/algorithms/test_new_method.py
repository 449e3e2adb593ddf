"""A new method is one file: `gap_method.py` runs through all that a registered one does, and nothing else knows it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import nn

import algorithms.test_canary as canary
import algorithms.test_every_method as contract
import fedfdp
from fedfdp.algorithms import ALGORITHMS, Algorithm, FedAvg, algorithm_name, find
from fedfdp.algorithms.base import Broadcast, ClientState, ServerState, Upload
from fedfdp.experiments.traffic import measure
from fedfdp.models import build
from fedfdp.runs import config as configs
from fedfdp.tuning.grid import candidates, default_grid
from gap_method import Gap, GapMemory, GapMessage, GapReply, GapState
from rounds import flat, linear, play
from support import Given

NAME = "gap_method:Gap"
PRIVATE = contract.PRIVATE


def test_its_records_are_those_of_its_type_arguments():
    assert (Gap.State, Gap.Message, Gap.Reply, Gap.Memory) == (GapState, GapMessage, GapReply, GapMemory)
    assert (FedAvg.State, FedAvg.Message, FedAvg.Reply, FedAvg.Memory) == (ServerState, Broadcast, Upload, ClientState)

    class Derived(Gap):
        pass

    assert Derived.Reply is GapReply
    assert {kind.Reply.__name__ for kind in ALGORITHMS.values()} == {
        *("Upload", "ScaffoldUpload", "QUpload", "ALIUpload", "FairUpload", "FDPUpload", "LossUpload")
    }


def test_two_rounds_by_hand(two_clients):
    # b: loss u²/4, gradient u/2. Round 1: loss 0.25, u 1 → 0.95. Round 2: steps of η/1.25, loss 0.95²/4 = 0.225625
    method, only_b = Gap(lr=0.1, local_steps=1), lambda client, _: client == "b"
    one = play(method, two_clients, linear(1, 0), present=only_b)
    assert one.weights == pytest.approx([0.95, 0.0], abs=1e-6)
    assert [one.state.gap, one.uploads[0].gap, one.memories["b"].loss] == pytest.approx([0.25] * 3)
    two = play(method, two_clients, linear(1, 0), present=only_b, after=one)
    assert two.broadcast.gap == pytest.approx(0.25)
    assert two.weights == pytest.approx([0.95 - 0.08 * 0.475, 0.0], abs=1e-6)
    assert two.uploads[0].gap == pytest.approx(0.225625 - 0.25, abs=1e-6)


@pytest.mark.parametrize("privacy", [None, PRIVATE], ids=["plain", "private"])
@pytest.mark.usefixtures("shared_noise")
def test_it_keeps_the_contract_of_every_method(digits, tmp_path, privacy):
    method = Gap(lr=0.5)
    contract.test_records_cross_a_network_bit_for_bit(digits, method, privacy)
    contract.test_uploads_are_read_once_and_none_is_kept(digits, method, privacy)
    contract.test_many_clients_in_one_pass_change_nothing(digits, method, privacy)
    contract.test_a_resumed_run_goes_on_to_the_same_bits(digits, tmp_path, method, privacy)
    contract.test_a_step_size_that_decays_is_lr_times_decay_to_the_round(digits, method, privacy)
    contract.test_a_step_size_that_decayed_to_nothing_divides_nothing_by_zero(digits, method, privacy)
    contract.test_parameters_whose_gradients_share_memory_go_the_same_way(method, privacy, digits)


@pytest.mark.parametrize("steps", [1, 3])
def test_only_the_mechanism_tells_of_a_record(steps):
    moved = 2.0 * canary.SHARE  # C_l/(q·n): what one record moves the released loss by
    canary.check(Gap(lr=canary.LR, local_steps=steps), gap=moved)


def test_what_it_asks_is_what_it_pays(digits):
    """σ of the joint event by hand: K − 1 gradients, and one with a loss beside it."""
    alone, joint = Gap(local_steps=3).events(None, PRIVATE)
    assert (alone.count, alone.sigmas) == (2, (2.0,))
    assert (joint.count, joint.sigmas) == (1, (2.0, 5.0))


def test_a_run_its_folder_and_its_statement(digits, tmp_path):
    model = build("linear", input_shape=digits.input_shape, outputs=10, seed=1)
    fedfdp.train(model, digits, algorithm=Gap(lr=0.5), privacy=PRIVATE, rounds=3, out=tmp_path / "run")
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert made["algorithm"] == NAME
    assert made["released"]["gap"] == "the change of the noised loss since the client's last round"
    assert set(made["released"]) == {"update", "gap"}
    assert made["mechanism"]["sigma_beside"] == [5.0]


def test_its_traffic():
    """Twice a model of 10 weights with its names; one number more than FedAvg each way."""
    rows = measure(nn.Linear(4, 2), input_shape=(4,), outputs=2, methods=[FedAvg(), Gap()])
    assert [row.method for row in rows] == ["fedavg", "gap"]
    assert rows[0].down < rows[1].down < rows[0].down + 64
    assert rows[0].up < rows[1].up < rows[0].up + 64


def test_a_config_names_it_and_tuning_tries_what_it_proposes():
    assert find(NAME) is Gap
    assert algorithm_name(Gap()) == NAME
    chosen = [f"algorithm.name={NAME}", "algorithm.lr=0.5", "privacy.clip=0.2", "rounds=2"]
    assert default_grid(configs.load("digits", chosen)) == {
        "algorithm.damp": ["0.0", "1.0"],
        "algorithm.lr": ["0.25", "0.5", "1.0"],
        "privacy.clip": ["0.2", "2.0"],
    }
    tried = candidates("digits", chosen, None, public=None)
    assert len(tried) == 2 * 3 * 2
    assert type(tried[0].config.algorithm) is Gap


def test_one_that_only_weighs_differently(two_clients):
    class Equal(FedAvg):
        """Every client counts the same, however many records it has."""

        def weigh(self, state, upload):
            return 1.0

    played = play(Equal(lr=0.1), two_clients, linear(1, 0))
    updates = [flat(upload.update) for upload in played.uploads]
    mean = [sum(values) / 2 for values in zip(*updates, strict=True)]
    assert played.weights == pytest.approx([1 + mean[0], mean[1]], abs=1e-6)


def test_a_gradient_that_a_method_keeps_is_not_overwritten(two_clients):
    @dataclass(frozen=True)
    class Kept(ClientState):
        gradient: dict

    class Keeps(Algorithm[ServerState, Broadcast, Upload, Kept]):
        def memory(self):
            return Kept({})

        def direction(self, here, released):
            here.memory = Kept(released.gradient)
            return released.gradient

    privacy = fedfdp.DPSGD(delta=1e-5, epsilon=100.0, sigma=2.0, q=1.0, clip=1.0, sigma_loss=5.0)
    played = play(Keeps(lr=0.5), two_clients, linear(1, 0), privacy=privacy, randomness=Given(0.1))
    for upload in played.uploads:
        kept = flat(played.memories[upload.client].gradient)
        assert flat(upload.update) == pytest.approx([-0.5 * g for g in kept])


@pytest.mark.slow
def test_the_type_checker_sees_its_records(tmp_path):
    """mypy accepts the method, and refuses a field that its records do not have."""
    root = Path(__file__).parents[2]
    own, env = root / "tests" / "gap_method.py", {**os.environ, "MYPYPATH": str(root / "src")}
    wrong = own.read_text().replace("upload.weight * upload.gap", "upload.weight * upload.loss")
    wrong = wrong.replace("here.broadcast.gap", "here.broadcast.gaps").replace("gap=known", "gap=known, gaps=known")
    (tmp_path / "wrong_method.py").write_text(wrong)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    right, told = (
        subprocess.run([*command, str(file)], capture_output=True, text=True, cwd=root, env=env, check=False)
        for file in (own, tmp_path / "wrong_method.py")
    )
    assert right.returncode == 0, right.stdout
    assert told.stdout.count("error:") == 3, told.stdout
    for kind, name in (("GapReply", "loss"), ("GapMessage", "gaps")):
        assert f'"{kind}" has no attribute "{name}"' in told.stdout
