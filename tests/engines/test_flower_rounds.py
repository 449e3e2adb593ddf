"""The coordinator's rounds with nodes that misbehave, refuse, run out of budget, or see it crash and come back."""

import json
import math
from dataclasses import replace

import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedfdp.core.errors import DataError, RunError, SettingError
from fedfdp.core.records import from_bytes, to_bytes
from fedfdp.engines.flower.engine import FlowerEngine
from fedfdp.engines.flower.messages import Answer, pack, unpack
from fedfdp.engines.flower.policy import Policy
from fedfdp.runs import config as configs
from fedfdp.training.rounds import Trainer

SECURE = Policy(epsilon=8.0, max_q=0.2)
FEDAVG = ["algorithm.name=fedavg", "algorithm.lr=0.5"]


def spoiling(name, spoil, rounds=(1,)):
    """Replaces what one node sends in some rounds."""

    def tamper(node, message, reply):
        if node.name != name or message.metadata.message_type != "train":
            return reply
        answer = unpack(Answer, reply.content, limit=2**40)
        if answer.round not in rounds:
            return reply
        spoilt = spoil(answer)
        return None if spoilt is None else Message(spoilt, reply_to=message)

    return tamper


def upload(change):
    """An answer whose upload is changed."""

    def spoil(answer):
        from fedfdp.algorithms.base import Upload

        return pack(replace(answer, record=to_bytes(change(from_bytes(Upload, answer.record)))))

    return spoil


def with_weight(tensor):
    return upload(lambda u: replace(u, update={**u.update, "1.weight": tensor(u.update["1.weight"])}))


def spent(history, **rule):
    return json.dumps({"history": history, "accountant": "pld", "budget": 8.0, "delta": 1e-5, **rule})


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (with_weight(lambda w: torch.full_like(w, math.nan)), "holds NaN or infinities"),
        (with_weight(lambda w: torch.full_like(w, -math.inf)), "holds NaN or infinities"),
        (with_weight(lambda w: w[:5]), "is torch.float32 (5, 64), not torch.float32 (10, 64)"),
        (with_weight(lambda w: w.half()), "is torch.float16"),
        (with_weight(lambda w: torch.zeros(4096, 4096)), "a record of 67,109,224 bytes, where"),
        (upload(lambda u: replace(u, update={})), "does not have the model's parameters"),
        (upload(lambda u: replace(u, client="client-0")), "an upload in the name of 'client-0'"),
        (upload(lambda u: replace(u, records=10**9)), "an upload of 1000000000 records"),
        (upload(lambda u: replace(u, discount=1e6)), "sets its own discount"),
        (lambda a: pack(replace(a, round=0)), "an answer to round 1 of another question"),
        (lambda a: pack(replace(a, run="other")), "of another question"),
        (lambda a: pack(replace(a, record=b"\x80\x04K\x01.")), "not a valid Upload record"),
        (lambda a: pack(replace(a, spent=spent([[2.0, 1.0, 1]]))), "an impossible entry"),
        (lambda a: pack(replace(a, spent=spent([], accountant="paper"))), "an impossible rule"),
        (lambda a: pack(replace(a, spent=spent([], budget=1e300))), "its ledger is another one than before"),
        (lambda a: pack(replace(a, spent="[]")), "not history, accountant, budget and delta"),
        (lambda a: RecordDict({**pack(a), "fedfdp": ConfigRecord({"status": "ok"})}), "not a valid Answer"),
        (lambda a: RecordDict({"fedfdp": ConfigRecord({"status": "ok"})}), "speaks protocol 1"),
        (lambda a: pack(replace(a, spent=spent([]))), "its ledger shows less than it did before"),
        (lambda a: RecordDict({}), "not a valid Answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_node_is_named_and_left_out_and_the_round_goes_on(deployment, caplog, spoil, reason):
    dep = deployment(*FEDAVG)
    dep.grid.tamper = spoiling("client-1", spoil)
    result = dep.run()
    (line,) = [record.message for record in caplog.records if "left out" in record.message]
    assert line.startswith("client-1 is left out of round 2: ")
    assert reason in line
    assert result.summary["rounds"] == 3
    assert all(torch.isfinite(p).all() for p in result.model.state_dict().values())
    assert math.isfinite(result.summary["loss"])


def test_the_others_are_averaged_as_if_it_had_been_away(deployment):
    """Round 2 without client-1 is Σ n_i u_i / Σ n_i over the other two, from what they sent."""
    dep = deployment(*FEDAVG, "rounds=2", "server.average=0.0")
    sent = {}

    def keep(node, message, reply):
        if message.metadata.message_type == "train":
            answer = unpack(Answer, reply.content, limit=2**40)
            sent[node.name, answer.round] = from_bytes(dep.config.algorithm.Reply, answer.record)
            if (node.name, answer.round) == ("client-1", 1):
                return Message(pack(replace(answer, record=b"")), reply_to=message)
        return reply

    dep.grid.tamper = keep
    result = dep.run()
    from fedfdp.engines.flower.terms import build_model

    start = build_model({"name": "linear"}, dep.federation, seed=0).state_dict()
    expected = {name: tensor.double() for name, tensor in start.items()}
    for round, names in ((0, ("client-0", "client-1", "client-2")), (1, ("client-0", "client-2"))):
        total = sum(sent[name, round].records for name in names)
        for key in expected:
            expected[key] += sum(sent[n, round].records / total * sent[n, round].update[key].double() for n in names)
    for key, tensor in result.model.state_dict().items():
        assert torch.allclose(tensor.double(), expected[key], rtol=0, atol=1e-6)


def test_a_robust_mean_names_a_node_whose_uploads_are_far_too_long(deployment):
    dep = deployment(*FEDAVG, "server.robust=norm")
    dep.grid.tamper = spoiling("client-2", with_weight(lambda w: w * 1000), rounds=(0, 1, 2))
    summary = dep.run().summary
    assert list(summary["robust"]["named"]) == ["client-2"]
    assert summary["rounds"] == 3


def test_the_setting_that_dropped_long_uploads_says_what_takes_its_place():
    said = r'flower.norm_ratio = 20.0: there is no such setting any more.* server.robust = "norm"'
    with pytest.raises(SettingError, match=said):
        configs.load("digits", ["flower.norm_ratio=20.0"])


def test_a_node_that_does_not_answer_in_time_is_left_out(deployment, caplog):
    dep = deployment(*FEDAVG, deadline=0.3)
    dep.grid.tamper = spoiling("client-1", lambda answer: None)
    result = dep.run()
    assert "client-1 is left out of round 2: no answer within 0.3 seconds" in caplog.text
    assert result.summary["rounds"] == 3
    # it computed and paid: its own ledger and the coordinator's view of it agree
    assert len(list(dep.nodes[101].ledger.entries())) == 3


def test_scaffold_forgets_a_round_that_was_not_used(deployment, monkeypatch):
    """The node whose reply was lost goes on from the control variate it had: c stays Σ p_i c_i."""
    dep = deployment("algorithm.name=scaffold", "algorithm.lr=0.5", "algorithm.local_steps=2", deadline=0.3)
    dep.grid.tamper = spoiling("client-1", lambda answer: None)
    trainers = []
    init = Trainer.__init__

    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        trainers.append(self)

    monkeypatch.setattr(Trainer, "__init__", watched)
    dep.run()
    kind = dep.config.algorithm.Memory
    own = {n.name: from_bytes(kind, n.remembered.next).control["1.weight"].double() for n in dep.nodes.values()}
    sizes = {client.name: len(client.train) for client in dep.federation.clients}
    expected = sum(sizes[name] * own[name] for name in own) / sum(sizes.values())
    control = trainers[0].progress.state.control["1.weight"].double()
    assert torch.allclose(control, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_fewer_than_the_quorum_end_the_run_with_a_way_on(deployment, tmp_path):
    dep = deployment(*FEDAVG, wait=0.5)
    del dep.grid.nodes[101], dep.grid.nodes[102]
    with pytest.raises(RunError, match=r"1 nodes came, 2 are needed \(missing: client-1, client-2\)"):
        dep.run(out=tmp_path / "run")


def test_a_run_starts_with_a_quorum_and_takes_in_who_comes_later(deployment, caplog):
    dep = deployment(*FEDAVG, wait=0.5, policy=replace(SECURE, evaluate=True), unsafe_seeded=False)
    late = dep.grid.nodes.pop(102)
    seen = []

    def on_update(update):
        seen.append(update.step.took_part)
        dep.grid.nodes[102] = late

    result = dep.run(on_update=on_update)
    assert seen == [2, 3, 3]
    assert [len(list(n.ledger.entries())) for n in dep.nodes.values()] == [3, 3, 2]
    assert result.summary["evaluated_clients"] == 3


def test_refusals_of_all_end_the_run_and_say_why(deployment):
    dep = deployment(*FEDAVG, policy=replace(SECURE, min_sigma=3.0), unsafe_seeded=False)
    with pytest.raises(RunError, match=r"round 1 was refused \(client-0: policy.min_sigma does not allow"):
        dep.run()


def test_nodes_without_budget_sit_out_and_the_run_ends_when_none_can_pay(deployment):
    dep = deployment(
        *FEDAVG, "rounds=30", "privacy.epsilon=8", policy=replace(SECURE, epsilon=0.9), unsafe_seeded=False
    )
    result = dep.run()
    paid = len(list(dep.nodes[100].ledger.entries()))
    assert 1 <= paid < 30
    assert result.summary["rounds"] == paid
    assert 0.7 < result.summary["epsilon"] <= 0.9


def test_nobody_evaluates_by_default_and_progress_shows_what_is_released(deployment, tmp_path):
    dep = deployment("algorithm.name=fedfdp", "algorithm.lr=0.5", policy=SECURE, unsafe_seeded=False)
    result = dep.run(out=tmp_path / "run")
    assert result.summary["evaluated_clients"] == 0
    for name in ("accuracy", "worst_accuracy", "std_accuracy", "psi_train"):
        assert result.summary[name] is None
    # the spread of the released losses, by hand
    weights = {c.name: len(c.train) for c in dep.federation.clients}
    kept = result.history[-1]["clients"]["loss"]
    total = sum(weights.values())
    mean = sum(weights[c.name] * loss for c, loss in zip(dep.federation.clients, kept, strict=True)) / total
    spread = sum(
        weights[c.name] / total * (loss - mean) ** 2 for c, loss in zip(dep.federation.clients, kept, strict=True)
    )
    assert result.summary["loss"] == pytest.approx(mean)
    # less the noise's own: three releases weigh 0.81, 0.09 and 0.1, each with noise of σ_l·C_l/(q·n) on it
    releases = 0.81**2 + 0.09**2 + 0.1**2
    added = sum((n / total) * (1 - n / total) * (5.0 * 2.5 / (0.1 * n)) ** 2 * releases for n in weights.values())
    assert added > 0
    assert result.summary["psi"] == pytest.approx(max(0.0, spread - added))
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert not any("simulation" in warning for warning in statement["warnings"])


@pytest.mark.parametrize("moment", ["before aggregating", "before the checkpoint"])
def test_a_coordinator_that_crashes_after_the_uploads_came_makes_no_node_pay_twice(
    deployment, tmp_path, monkeypatch, moment
):
    """Secure noise: only the very uploads of the first try can give the very weights of an uninterrupted run."""
    dep = deployment("algorithm.name=scaffold", "algorithm.lr=0.5", "algorithm.local_steps=2", policy=SECURE)
    dep.settings = replace(dep.settings, unsafe_seeded=False)
    sent = {}

    def keep(node, message, reply):
        if message.metadata.message_type == "train":
            answer = unpack(Answer, reply.content, limit=2**40)
            sent.setdefault((node.name, answer.round), []).append(answer.record)
        return reply

    dep.grid.tamper = keep
    crashes = iter([False, True, False, False, False, False])
    if moment == "before aggregating":
        collect = FlowerEngine._collect

        def crash(self, broadcast, wanted):
            uploads = collect(self, broadcast, wanted)
            if next(crashes):
                raise MemoryError
            return uploads

        monkeypatch.setattr(FlowerEngine, "_collect", crash)
    else:
        run = Trainer.run

        def crashing(self):
            for step in run(self):
                if next(crashes):
                    raise MemoryError
                yield step

        monkeypatch.setattr(Trainer, "run", crashing)
    with pytest.raises(MemoryError):
        dep.run(out=tmp_path / "run")
    result = dep.run(out=tmp_path / "run", resume=True)
    assert result.summary["rounds"] == 3
    for node in dep.nodes.values():
        assert [entry.round for entry in node.ledger.entries()] == [0, 1, 2]
        assert [len(sent[node.name, r]) for r in range(3)] == [1, 2, 1]
        assert sent[node.name, 1][0] == sent[node.name, 1][1]
    assert result.summary["epsilon"] == pytest.approx(dep.nodes[100].ledger.epsilon())


def test_a_resumed_coordinator_knows_what_absent_nodes_had_spent(deployment, tmp_path):
    dep = deployment(*FEDAVG, wait=0.3, policy=SECURE)
    dep.settings = replace(dep.settings, unsafe_seeded=False)

    def interrupt(update):
        if update.step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dep.run(out=tmp_path / "run", on_update=interrupt)
    del dep.grid.nodes[101]
    dep.run(out=tmp_path / "run", resume=True)
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    spent = {client["client"]: client["epsilon"] for client in statement["clients"]}
    assert spent["client-1"] == pytest.approx(dep.nodes[101].ledger.epsilon())
    assert 0 < spent["client-1"] < spent["client-0"]


def test_settings_that_do_not_go_together_are_named(deployment):
    from fedfdp.engines.flower.settings import Flower

    with pytest.raises(SettingError, match=r"flower\.unsafe_seeded = True: only on this machine"):
        Flower(address="0.0.0.0:9092", unsafe_seeded=True)
    with pytest.raises(SettingError, match=r"flower\.plain_text"):
        Flower(address="10.1.1.1:9092", plain_text=True)
    with pytest.raises(SettingError, match=r"flower\.quorum"):
        Flower(nodes={"a": "", "b": ""}, quorum=3)
    dep = deployment(*FEDAVG, "participation.dropout=0.1")
    with pytest.raises(SettingError, match="for simulations"):
        dep.run()


def test_unpacking_never_trusts(deployment):
    with pytest.raises(DataError, match="bytes"):
        unpack(Answer, pack(Answer("ok", "r", 0, record=b"x" * 100)), limit=99)
    again = unpack(Answer, pack(Answer("ok", "r", 3, record=b"x" * 100)), limit=100)
    assert (again.round, again.record) == (3, b"x" * 100)


def test_a_question_that_expires_a_moment_early_is_a_late_answer_not_a_lost_node(deployment, caplog):
    """Flower's clock may be up before ours: the node is then given up for the round, and not asked while it is busy."""
    dep = deployment(*FEDAVG, "rounds=1", deadline=1.0)
    error = Error(code=ErrorCode.MESSAGE_UNAVAILABLE, reason="expired")

    def expired(node, message, reply):
        late = node.name == "client-1" and message.metadata.message_type == "train"
        return Message(error, reply_to=message) if late else reply

    dep.grid.tamper = expired
    assert dep.run().summary["rounds"] == 1
    assert "client-1 is left out of round 1: no answer within 1 seconds" in caplog.text
    assert "it is gone" not in caplog.text
