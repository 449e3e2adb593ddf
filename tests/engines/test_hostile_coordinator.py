"""A coordinator that means harm, against a node: it never dies, and nothing leaves it that was not paid and noised.

For every message: one short line or an answer, no file touched outside the node's folder, no module imported that its
owner did not name, the ledger as it was unless a round was answered, and charged before a batch of that round is drawn.
How long an answer takes is not looked at: time can tell a coordinator something about records, here as everywhere.
"""

import json
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

from fedfdp.core.errors import DataError
from fedfdp.core.records import to_bytes
from fedfdp.data import Federation
from fedfdp.deploy.local import prepare, start_node, stop
from fedfdp.engines.flower.messages import Answer, Judge, Question, pack, reply_to, unpack
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig, NodeData, Policy
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import listening
from fedfdp.engines.flower.terms import build_model
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.runs import config as configs
from fedfdp.training.client import LocalClient
from hostile import IMPORTS, Case, Coordinator

SECRET = float(np.float32(0.71234192))  # a value of a record; nothing that leaves the node may quote it
OWN = Policy(epsilon=8.0, max_q=0.2)  # every method at a fixed price
POLICIES = {
    "default": OWN,
    "filter": replace(OWN, epsilon=1e4, accountant="filter", algorithms=(*OWN.algorithms, "ali_dpfl"), evaluate=True),
}


def federation() -> Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 8)).astype(np.float32)
    x[:, 0] = SECRET
    return Federation.from_clients({"n": (x, rng.integers(0, 3, 80))}, classes=3)


def weights():
    model = build_model({"name": "linear"}, federation(), seed=0)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@dataclass
class Watch:
    """What the process does while a message is answered."""

    allowed: str = ""
    on: bool = False
    seen: list[str] = field(default_factory=list)

    def __call__(self, event: str, arguments: tuple) -> None:
        if not self.on or any(
            own in str(arguments[:1]) for own in ("__pycache__", "torchinductor")
        ):  # compilers' caches
            return
        if event in (
            "os.system",
            "subprocess.Popen",
            "socket.connect",
            "os.exec",
            "os.remove",
            "os.rename",
            "os.mkdir",
        ):
            if not str(arguments[0]).startswith(self.allowed):
                self.seen.append(f"{event} {arguments[0]}")
        elif event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(self.allowed):
            wrote = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if wrote or "passwd" in arguments[0]:
                self.seen.append(f"open {arguments[:2]}")
        elif event == "import" and arguments[0].partition(".")[0] in {name.partition(":")[0] for name in IMPORTS} - {
            "os", "torch.nn", "fedfdp.algorithms", "", "..",
        }:  # fmt: skip
            self.seen.append(f"import {arguments[0]}")


WATCH = Watch()
sys.addaudithook(WATCH)  # for as long as the process lives: it looks only where `on` is set


@pytest.fixture(params=list(POLICIES))
def node(request, tmp_path, monkeypatch):
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # crashes are for other tests; this saves most of the time
    about = NodeConfig(
        "n", "127.0.0.1:1", str(tmp_path / "n"), NodeData(file="-"), plain_text=True, policy=POLICIES[request.param]
    )
    with Node(about, federation()) as made:
        drawn = []
        real = LocalClient.poisson

        def poisson(self, step):
            drawn.append(charges(made))
            return real(self, step)

        monkeypatch.setattr(LocalClient, "poisson", poisson)
        made.drawn, WATCH.allowed = drawn, str(tmp_path)
        yield made
    WATCH.on = False


def charges(node: Node) -> int:
    """Lines of the ledger's file, which a crash would leave."""
    return (node.folder / "ledger.jsonl").read_bytes().count(b"\n")


def ask(node: Node, content, kind: str = "train") -> Answer:
    message = Message(content, 1, kind if kind in ("train", "evaluate", "query") else "train")
    message.metadata.__dict__["_message_id"] = "1"
    WATCH.on, WATCH.seen = True, []
    try:
        reply = reply_to(message, node.answer)
    finally:
        WATCH.on = False
    return unpack(Answer, reply.content, limit=2**31)


def check_words(said: Answer, folder: Path) -> None:
    assert len(said.reason) <= 300
    assert said.reason.isprintable()
    for private in (str(folder), str(Path.home()) + "/", "ledger.jsonl", "site-packages", "Traceback", "0.71234"):
        assert private not in said.reason


def attack(node: Node, count: int, seed: int) -> dict[str, int]:
    """Sends so many messages and looks at each answer; how many of each status there were."""
    known: dict[bytes, tuple] = {}  # every upload that was given, and its question
    found = {"ok": 0, "refused": 0, "unable": 0}
    coordinator = Coordinator(weights(), seed=seed)
    honest = {coordinator.question(name).terms for name in coordinator.valid}
    for case in coordinator.cases(count):
        before, evaluations = charges(node), node.evaluations.answered
        node.drawn.clear()
        said = ask(node, case.content, case.kind)
        paid = charges(node) - before
        check_words(said, node.folder)
        assert WATCH.seen == [], case.label
        assert not node.stopped, case.label  # whatever is wrong was seen before a record was read
        assert all(entries == before + 1 for entries in node.drawn), case.label  # paid, on the disk, before it is drawn
        found[said.status] += 1
        if said.status != "ok":
            assert (paid, said.record, node.drawn) == (0, b"", []), case.label
            assert said.reason, case.label
            assert node.evaluations.answered == evaluations
        elif node.evaluations.answered > evaluations:
            assert (paid, node.drawn, node.policy.evaluate) == (0, [], True), case.label
        elif '"name": "local"' in case.content["fedfdp"]["terms"]:  # zeros, whatever was asked
            assert paid == bool(node.drawn), case.label
        elif said.record in known:  # the same bytes for the same question, free
            assert (paid, node.drawn, case.content["fedfdp"]["terms"]) == (0, [], known[said.record]), case.label
        else:
            assert paid == 1, case.label
            assert node.drawn, case.label
            known[said.record] = case.content["fedfdp"]["terms"]
            if case.content["fedfdp"]["terms"] in honest:  # others may overflow by what comes after the noise
                check_upload(said.record, case.label)
    assert not any(name.partition(":")[0] in sys.modules for name in ("antigravity:fly", "this:s"))
    return found


def check_upload(record: bytes, label: str) -> None:
    assert all(t.isfinite().all() for t in safetensors.torch.load(record).values()), label


def test_hundreds_of_hostile_messages(node):
    found = attack(node, 150, seed=0)
    assert found["ok"] > 5
    assert found["refused"] > 75


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_thousands_of_hostile_messages(node, seed):
    found = attack(node, 4000, seed=seed)
    assert sum(found.values()) == 4000


@pytest.mark.parametrize("own", [["*"], ["nothing"]])
def test_a_round_in_which_nothing_is_shared_is_refused_and_costs_nothing(node, own):
    coordinator = Coordinator(weights())
    question, (terms, _) = coordinator.question("fedavg"), coordinator.valid["fedavg"]
    said = ask(node, pack(replace(question, terms=json.dumps({**terms, "model": {**terms["model"], "own": own}}))))
    assert said.reason.startswith("model.own = ")
    assert (said.status, charges(node), node.drawn) == ("refused", 1, [])


def test_a_message_without_content_is_refused(node):
    message = Message(Error(code=1, reason="x"), reply_to=_any_message())
    said = unpack(Answer, reply_to(message, node.answer).content, limit=2**20)
    assert (said.status, said.record) == ("refused", b"")
    check_words(said, node.folder)


def _any_message() -> Message:
    message = Message(pack(Question("hello", "", "")), 1, "query")
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_an_upload_is_noised_by_the_noise_that_was_paid_for(node):
    """The same broadcast in many runs: its uploads differ by σ·C/(q·n)·η, coordinate by coordinate, and no less."""
    coordinator = Coordinator(weights())
    uploads = []
    for run in range(30):
        said = ask(node, pack(coordinator.question("fedavg", run=f"run-{run}")))
        if said.status == "ok":
            uploads.append(safetensors.torch.load(said.record)["/update/1.weight"])
    assert len(uploads) == len(list(node.ledger.entries())) >= 20
    spread = torch.stack(uploads).double().std(0)
    noise = 0.5 * 2.0 * 1.0 / (0.1 * 60)  # η·σ·C/(q·n)
    # Batches move uploads too, so the mean is above; one of 20 draws is off by 16 % or so, none by more than half.
    assert float(spread.mean()) >= 0.9 * noise
    assert float(spread.min()) > 0.4 * noise


def test_an_error_while_records_are_read_tells_the_owner_alone(node, monkeypatch, caplog):
    """Whatever fails there, whatever it says: one constant line, and no more rounds until the owner has seen to it."""
    question = Coordinator(weights()).question("fedavg")

    def failing(self, weights, x, y, coefficient, sizes=None):
        if len(x) == 3 and float(x[0, 0]) != SECRET:
            return real(self, weights, x, y, coefficient, sizes)  # made-up records
        raise DataError(f"{node.folder}: a record is {SECRET}")

    real = Learner.clipped
    monkeypatch.setattr(Learner, "clipped", failing)
    said = ask(node, pack(question))
    check_words(said, node.folder)
    assert (said.status, said.record) == ("refused", b"")
    assert said.reason == "the node could not answer; its owner finds the reason in its log"
    assert str(SECRET)[:8] in caplog.text  # in the log
    monkeypatch.setattr(Learner, "clipped", real)
    assert ask(node, pack(replace(question, run="again"))).reason == said.reason  # not a bit a round
    assert ask(node, pack(Question("hello", "", "")), "query").status == "ok"
    node.book.close()
    with Node(node.config, node.federation) as restarted:  # nor by waiting for a restart
        assert restarted.answer(question).reason == said.reason
        (node.folder / "stopped").unlink()
    with Node(node.config, node.federation) as seen_to:
        assert seen_to.answer(question).status == "ok"


def test_what_a_run_remembers_is_of_one_method(node):
    """The same run under another method's terms begins with nothing, and quotes nothing of what was remembered."""
    coordinator = Coordinator(weights())
    assert ask(node, pack(coordinator.question("scaffold"))).status == "ok"
    other = replace(coordinator.question("feddyn", round=1), last=0)
    said = ask(node, pack(other))
    assert said.status == "ok"


def test_training_without_noise_is_refused(node):
    question = Coordinator(weights()).question("fedavg")
    terms = {**json.loads(question.terms), "privacy": None}
    said = ask(node, pack(replace(question, terms=json.dumps(terms))))
    assert (said.status, said.reason) == ("refused", "policy.without_privacy does not allow training without privacy")
    judged = ask(node, pack(replace(question, kind="evaluate", record=to_bytes(Judge(weights())))), "evaluate")
    assert judged.status == ("ok" if node.policy.evaluate else "refused")


def test_a_model_of_the_owners_own_is_made_as_the_owner_says(tmp_path):
    """A listed import path is called with the arguments that the owner wrote, not with a stranger's."""
    policy = replace(
        OWN, models=("torch.nn:Linear",), arguments={"torch.nn:Linear": {"in_features": 8, "out_features": 3}}
    )
    about = NodeConfig("n", "127.0.0.1:1", str(tmp_path), NodeData(file="-"), plain_text=True, policy=policy)
    question = Coordinator({"weight": torch.zeros(3, 8), "bias": torch.zeros(3)}).question("fedavg")

    def asked(arguments):
        terms = {**json.loads(question.terms), "model": {"name": "torch.nn:Linear", "arguments": arguments}}
        return node.answer(replace(question, terms=json.dumps(terms)))

    with Node(about, federation()) as node:
        assert asked({"in_features": 8, "out_features": 3}).status == "ok"
        said = asked({"in_features": 8, "out_features": 3, "device": "cuda"})
        assert said.reason.startswith("policy.arguments does not allow {'in_features': 8")
        assert asked({}).status == "refused"


@pytest.mark.slow
def test_a_real_node_process_outlives_hundreds_of_hostile_messages(tmp_path):
    """Through a real SuperLink with TLS and keys: every message is answered, and paid is exactly what was given."""
    overrides = ["data.source=digits", "data.clients=2", "data.partition=iid", "data.fraction=0.2", "model.name=linear"]
    private = ["privacy.sigma=2.0", "privacy.q=0.1", "privacy.epsilon=8", "algorithm.name=fedavg", "rounds=3"]
    config = configs.load("digits", [*overrides, *private]).resolved()
    settings = prepare(config, Flower(), tmp_path, ["client-0"])
    model = build("linear", input_shape=(1, 8, 8), outputs=10, seed=0)
    coordinator = Coordinator({name: p.detach().clone() for name, p in model.named_parameters()}, seed=4, classes=10)
    process = start_node(tmp_path / "client-0.toml", tmp_path / "client-0.log")
    ledger, uploads, answered = tmp_path / "client-0" / "ledger.jsonl", set(), 0
    try:
        with listening(settings) as link:
            while link.node_ids["client-0"] not in list(link.grid.get_node_ids()):
                assert process.poll() is None
                time.sleep(0.2)
            last = Case("valid", pack(coordinator.question("fedavg", run="last")))
            for case in (*coordinator.cases(300), last):
                kind = "evaluate" if case.kind == "evaluate" else "train"
                message = Message(case.content, link.node_ids["client-0"], kind, ttl=120.0)
                (sent,) = link.grid.push_messages([message])
                said = unpack(Answer, _reply(link, sent, process).content, limit=2**31)
                check_words(said, tmp_path)
                answered += 1
                if said.status == "ok" and kind == "train":
                    uploads.add(said.record)
                assert ledger.read_bytes().count(b"\n") == 1 + len(uploads), case.label
            assert (answered, said.status) == (301, "ok")
            assert process.poll() is None
            assert not (tmp_path / "client-0" / "stopped").exists()
    finally:
        stop([process])


def _reply(link, sent, process):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if replies := list(link.grid.pull_messages([sent])):
            assert not replies[0].has_error(), replies[0].error
            return replies[0]
        assert process.poll() is None
        time.sleep(0.02)
    raise AssertionError("no answer")
