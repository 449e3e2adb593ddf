"""The rounds of a run: one upload at a time, and progress that is written and read back whole."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

import fedfdp
from fedfdp.algorithms.base import Population, ServerState, Upload
from fedfdp.algorithms.scaffold import ScaffoldMemory, ScaffoldState, ScaffoldUpload
from fedfdp.core.records import to_bytes
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.runs.folder import CHECKPOINT, RunFolder
from fedfdp.training.protocols import Engine
from fedfdp.training.rounds import Late, Plan, Progress, Trainer

NAMES = ("a", "b", "c")


class Counting(Engine):
    """Client number i uploads i + 1, and remembers that it was asked."""

    def __init__(self, said):
        self.said, self.unable, self.able = said, set(), set(NAMES)

    def round(self, broadcast, memories, asked=None, *, watch=False):
        self.said.append(f"asked {' '.join(asked)}")
        self.unable = set(NAMES) - self.able
        for number, name in enumerate(NAMES):
            if name in asked and name in self.able:
                self.said.append(f"{name} uploads")
                yield Upload(name, 10, {"w": torch.tensor([number + 1.0])}), f"{name} after {broadcast.round}"


class Judge:
    performance = Performance()

    def test(self, weights):
        one = np.ones(3)
        return ClientResults(one * float(weights["w"]), one, one.astype(np.int64), one / 3)

    train = test

    def alone(self):
        return {}


@dataclass(frozen=True, kw_only=True)
class Sum(fedfdp.FedAvg):
    """Adds up all updates, and says when."""

    def aggregate(self, state, uploads):
        total = state.weights["w"]
        for upload in uploads:
            SAID.append(f"sums {upload.client} by {upload.discount:g}")
            total = total + upload.discount * upload.update["w"]
        return replace(state, round=state.round + 1, weights={"w": total})


SAID: list[str] = []


def trainer(**options) -> Trainer:
    SAID.clear()
    rule = {"participation": fedfdp.Participation(), "rounds": 2, "eval_every": 1} | options
    plan = Plan(Sum(), None, fedfdp.ServerOptimizer(), seed=0, repeatable=True, **rule)
    state = ServerState(0, {"w": torch.zeros(1)}, Population(3, 30, 10, None))
    return Trainer(plan, SimpleNamespace(names=NAMES, classes=None), Counting(SAID), Judge(), state)


def test_a_round_asks_and_sums_each_upload_as_it_comes_and_steps_and_evaluates():
    found = trainer()
    first, second = found.run()
    one_round = ["asked a b c"]
    for name in NAMES:
        one_round += [f"{name} uploads", f"sums {name} by 1"]
    assert one_round * 2 == SAID
    assert (first.round, first.took_part, first.evaluation.measures["loss"]) == (1, 3, 6.0)
    assert (second.round, second.evaluation.measures["loss"]) == (2, 12.0)
    assert "psi_train" not in first.evaluation.measures
    assert "psi_train" in second.evaluation.measures
    assert found.progress.memories == {name: f"{name} after 1" for name in NAMES}


def test_a_late_upload_counts_in_the_round_that_it_comes_in():
    """All of round 0 is late by one round: round 1 sums them with (1 + 1)^(-1/2), and its own are on their way."""
    late = fedfdp.Participation(stragglers=0.999999999, asynchronous=True)
    found = trainer(participation=late)
    first, second = found.run()
    assert (first.took_part, second.took_part) == (0, 3)
    assert [line for line in SAID if line.startswith("sums")] == [f"sums {name} by 0.707107" for name in NAMES]
    assert float(found.released["w"]) == np.float32(6 * 2**-0.5)
    assert [(reply.made, reply.due, reply.upload.client) for reply in found.progress.late] == [
        (1, 2, name) for name in NAMES
    ]
    assert found.progress.memories == {name: f"{name} after 1" for name in NAMES}


def test_an_upload_past_the_deadline_is_dropped_and_its_client_remembers_nothing_of_it():
    found = trainer(participation=fedfdp.Participation(stragglers=0.999999999))
    assert [step.took_part for step in found.run()] == [0, 0]
    assert (found.progress.memories, found.progress.late) == ({}, ())


def test_the_run_ends_unchanged_where_no_client_can_pay():
    found = trainer(rounds=5)
    steps = found.run()
    next(steps)
    before, found.engine.able = found.progress, set()
    assert list(steps) == []
    assert found.progress is before


def test_a_checkpoint_of_version_0_1_is_read_and_written_to_the_same_bytes(tmp_path):
    """checkpoint_0.1 is of SCAFFOLD with replies on their way, written when its types were made on the fly."""
    stored = Path(__file__).with_name("checkpoint_0.1").read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(stored)
    folder = RunFolder(tmp_path)
    read = folder.load_checkpoint(Progress[ScaffoldState, ScaffoldMemory, ScaffoldUpload])
    assert (type(read), type(read.state), read.state.round, read.charged) == (Progress, ScaffoldState, 3, 24)
    assert {type(reply) for reply in read.late} == {Late}
    assert {type(reply.upload) for reply in read.late} == {ScaffoldUpload}
    arriving = [(reply.upload.client, reply.made, reply.due) for reply in read.late]
    assert arriving == [("d", 1, 4), ("a", 2, 5), ("b", 2, 4), ("c", 2, 3), ("d", 2, 5)]
    assert {name: type(memory) for name, memory in read.memories.items()} == dict.fromkeys("abcd", ScaffoldMemory)
    folder.save_checkpoint(read)
    assert (tmp_path / CHECKPOINT).read_bytes() == stored


def test_a_checkpoint_is_read_as_the_method_s_own_records():
    found = trainer()
    kind = found.progress_type()
    assert kind == Progress[ServerState, fedfdp.FedAvg.Memory, Upload]
    assert to_bytes(found.progress)
