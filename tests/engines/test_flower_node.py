"""A node alone: what it pays, what it gives again for nothing, what it refuses, and what survives a crash."""

import json
from dataclasses import replace

import pytest
import torch

from fedfdp.algorithms.base import Broadcast, Population
from fedfdp.core import records
from fedfdp.core.errors import SettingError
from fedfdp.core.records import from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.engines.flower import memory
from fedfdp.engines.flower.messages import Hello, Judge, Question
from fedfdp.engines.flower.node import Node
from fedfdp.engines.flower.policy import NodeConfig, NodeData, Policy, load_node
from fedfdp.engines.flower.terms import Terms, build_model
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.accounting.events import history_of
from fedfdp.privacy.accounting.filter import RenyiFilter

SECURE = Policy(epsilon=8.0, max_q=0.2)  # what a node is unless its owner says otherwise: no seed, no evaluation
RDP = ["privacy.epsilon=50", "privacy.accountant=rdp"]  # a large ε is slow to price exactly


def weights_of(federation, seed=0):
    model = build_model({"name": "linear"}, federation, seed=seed)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def ask(dep, *, round=0, last=-1, seed=0, seeded=False, kind="train", run="r", config=None, record=None):
    config = (config or dep.config).resolved()
    state = config.algorithm.init(weights_of(dep.federation, seed), Population(3, 100, 10, 10), config.privacy)
    broadcast = replace(config.algorithm.broadcast(state), round=round)
    terms = Terms.of(config.algorithm, config.model, config.privacy, config.seed, seeded=seeded).to_json()
    return Question(kind, run, terms, round, last, record or to_bytes(broadcast))


@pytest.fixture
def secure(deployment):
    return deployment("algorithm.name=fedfdp", "algorithm.lr=0.5", policy=SECURE)


def node_of(dep):
    return dep.nodes[100]


def test_the_identical_question_gets_the_identical_bytes_free(secure):
    node = node_of(secure)
    first = node.answer(ask(secure))
    again = node.answer(ask(secure))
    assert first.status == again.status == "ok"
    assert first.record == again.record
    assert first.spent == again.spent
    assert len(list(node.ledger.entries())) == 1


def test_any_other_question_is_a_new_attempt_with_fresh_noise_and_is_charged(secure):
    node = node_of(secure)
    kind = secure.config.algorithm.Reply
    uploads = [from_bytes(kind, node.answer(ask(secure, seed=s)).record).update["1.weight"] for s in (0, 1, 0)]
    assert [entry.attempt for entry in node.ledger.entries()] == [0, 1, 2]
    # the third broadcast is the first again, but another came between: fresh batch, fresh noise, not the same bytes
    assert not torch.equal(uploads[0], uploads[2])
    assert not torch.equal(uploads[0], uploads[1])
    event = secure.config.algorithm.events(None, secure.config.privacy)
    paid = epsilon([replace(e, count=3 * e.count) for e in event], 1e-5)
    assert node.ledger.epsilon() == pytest.approx(paid, rel=1e-9)


def test_seeded_noise_is_never_used_under_two_broadcasts(deployment):
    dep = deployment("algorithm.name=fedavg", "algorithm.lr=1.0", "privacy.clip=1e-6")
    node = node_of(dep)
    one = from_bytes(dep.config.algorithm.Reply, node.answer(ask(dep, seed=0, seeded=True)).record).update
    two = from_bytes(dep.config.algorithm.Reply, node.answer(ask(dep, seed=1, seeded=True)).record).update
    # with so small a bound an upload is nearly noise alone; the same noise would make the difference vanish
    difference = torch.linalg.vector_norm(one["1.weight"] - two["1.weight"])
    assert difference > torch.linalg.vector_norm(one["1.weight"])


def test_after_a_crash_the_stored_upload_is_given_again_and_nothing_is_paid(secure):
    first = node_of(secure).answer(ask(secure))
    node_of(secure).book.close()
    restarted = secure.start_node(100, "client-0")
    assert restarted.answer(ask(secure)).record == first.record
    assert len(list(restarted.ledger.entries())) == 1


def test_a_crash_between_paying_and_keeping_the_upload_is_paid_for_again(secure, monkeypatch):
    node = node_of(secure)
    monkeypatch.setattr(memory, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        node.answer(ask(secure))
    monkeypatch.undo()
    node.book.close()
    restarted = secure.start_node(100, "client-0")
    assert len(list(restarted.ledger.entries())) == 1  # paid, though nothing left
    assert restarted.answer(ask(secure)).status == "ok"
    assert len(list(restarted.ledger.entries())) == 2


def test_memory_moves_only_when_the_upload_was_used(deployment):
    dep = deployment("algorithm.name=scaffold", "algorithm.lr=0.5", "algorithm.local_steps=2", policy=SECURE)
    node, kind = node_of(dep), dep.config.algorithm.Memory
    node.answer(ask(dep, round=0))
    kept = from_bytes(kind, node.remembered.next)
    node.answer(ask(dep, round=1, last=-1))  # the coordinator did not use round 0
    assert from_bytes(kind, node.remembered.memory).control == {}
    node.answer(ask(dep, round=0, run="other"))
    assert from_bytes(kind, node.remembered.memory).control == {}  # another run begins anew
    node.answer(ask(dep, round=0))
    kept = from_bytes(kind, node.remembered.next)
    node.answer(ask(dep, round=1, last=0))  # now it did
    now = from_bytes(kind, node.remembered.memory)
    assert all(torch.equal(now.control[name], kept.control[name]) for name in kept.control)


def test_the_nodes_budget_ends_it_whatever_the_coordinator_wants(deployment):
    dep = deployment("algorithm.name=fedavg", policy=replace(SECURE, epsilon=1.6))
    node, answers = node_of(dep), []
    while not answers or answers[-1].status == "ok":
        answers.append(node.answer(ask(dep, round=len(answers))))
    assert answers[-1].status == "unable"
    assert len(answers) > 1
    assert node.ledger.epsilon() <= 1.6
    one_more = epsilon(dep.config.algorithm.events(None, dep.config.privacy) * len(answers), 1e-5)
    assert one_more > 1.6


@pytest.mark.parametrize(
    ("settings", "policy", "rule"),
    [
        (["algorithm.name=scaffold"], {"algorithms": ("fedavg",)}, "policy.algorithms does not allow scaffold"),
        (["algorithm.name=fedavg"], {"min_sigma": 2.5}, "policy.min_sigma"),
        # a loss with little noise is a little-noised release of the batch, whatever the gradient's σ
        (["algorithm.name=fedfdp", "privacy.sigma_loss=0.6", *RDP], {}, "policy.min_sigma"),
        (["algorithm.name=fedavg"], {"max_q": 0.05}, "policy.max_q"),
        (["algorithm.name=fedavg", "privacy=none"], {}, "policy.without_privacy"),
        (["algorithm.name=fedavg", "model.name=torch.nn:Identity"], {}, "policy.models does not allow torch.nn"),
    ],
)
def test_what_the_owner_does_not_allow_is_refused_with_the_reason_and_costs_nothing(
    deployment, caplog, settings, policy, rule
):
    dep = deployment(*settings, policy=replace(SECURE, **policy))
    answer = node_of(dep).answer(ask(dep))
    assert answer.status == "refused"
    assert rule in answer.reason
    assert answer.record == b""
    assert rule in caplog.text
    assert list(node_of(dep).ledger.entries()) == []


def test_a_method_by_import_path_is_not_imported(secure):
    question = ask(secure)
    terms = json.loads(question.terms)
    terms["algorithm"] = {"name": "antigravity:fly"}
    answer = node_of(secure).answer(replace(question, terms=json.dumps(terms)))
    assert "policy.algorithms does not allow antigravity:fly" in answer.reason
    import sys

    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", ["antigravity:fly", ["antigravity:fly"], "own_accountant:PlainComposition"])
def test_an_accountant_by_import_path_is_not_imported(secure, name):
    import sys

    question, before = ask(secure), set(sys.modules)
    terms = json.loads(question.terms)
    terms["privacy"]["accountant"] = name
    answer = node_of(secure).answer(replace(question, terms=json.dumps(terms)))
    assert answer.reason == f"policy.accountant does not allow {name}"
    assert not (set(sys.modules) - before) & {"antigravity", "own_accountant"}
    assert node_of(secure).ledger.history == ()


def test_an_accountant_that_the_policy_names_is_taken(deployment, tmp_path):
    own = "own_accountant:PlainComposition"
    settings = [f"privacy.accountant={own}", "privacy.epsilon=30", "algorithm.name=fedavg"]
    dep = deployment(*settings, policy=replace(SECURE, epsilon=30.0, accountant=own), unsafe_seeded=False)
    summary = dep.run(out=tmp_path / "run").summary
    assert summary["epsilon"] == epsilon([Event(0.1, (2.0,), 3)], 1e-5, accountant=own)
    assert summary["epsilon"] == max(node.ledger.epsilon() for node in dep.nodes.values())
    made = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert made["remarks"] == []  # both sides count alike
    assert any(f"the accountant is {own}: its ε is its author's claim" in warning for warning in made["warnings"])


def test_a_seed_and_an_evaluation_are_refused_by_default(secure):
    node = node_of(secure)
    assert "policy.unsafe_seeded" in node.answer(ask(secure, seeded=True)).reason
    judge = to_bytes(Judge(weights_of(secure.federation)))
    assert "policy.evaluate" in node.answer(ask(secure, kind="evaluate", record=judge)).reason
    assert not from_bytes(Hello, node.answer(Question("hello", "", "")).record).evaluates


def test_another_price_needs_the_filter(deployment):
    dep = deployment("algorithm.name=fedavg", policy=SECURE)
    dearer = replace(dep.config, privacy=replace(dep.config.privacy, sigma=1.5))
    node = node_of(dep)
    assert node.answer(ask(dep)).status == "ok"
    assert "policy.accountant" in node.answer(ask(dep, config=dearer, round=1)).reason

    free = deployment("algorithm.name=fedavg", policy=replace(SECURE, accountant="filter"))
    node = node_of(free)
    assert node.answer(ask(free)).status == "ok"
    assert node.answer(ask(free, config=dearer, round=1)).status == "ok"


def test_an_absurd_first_question_does_not_spoil_a_filter(deployment):
    """The filter's order is that of the dearest batch which the policy allows, not that of what is asked first."""
    dep = deployment("algorithm.name=fedavg", policy=replace(SECURE, accountant="filter"))
    absurd = replace(dep.config, privacy=replace(dep.config.privacy, sigma=1e9, q=1e-9))
    node = node_of(dep)
    assert node.answer(ask(dep, config=absurd)).status == "ok"
    assert node.answer(ask(dep, round=1)).status == "ok"
    first = json.loads((node.folder / "ledger.jsonl").read_text().splitlines()[0])
    assert first["expects"] == [[0.2, [1.0], 1]]
    order = RenyiFilter().expecting(((0.2, 1.0, 1),), 8.0, 1e-5)
    spent = history_of([Event(1e-9, (1e9,)), Event(0.1, (2.0,))])
    assert node.ledger.epsilon_so_far() == order.epsilon(spent, 1e-5)


@pytest.mark.parametrize("steps", [1, 17])
def test_another_mix_of_the_same_events_needs_the_filter(deployment, steps):
    """Two local steps are a plain and a joint event: a coordinator that goes on with others of them chooses σ_eff."""
    dep = deployment("algorithm.name=fedfdp", "algorithm.local_steps=2", policy=SECURE)
    other = replace(dep.config, algorithm=replace(dep.config.algorithm, local_steps=steps))
    node = node_of(dep)
    assert node.answer(ask(dep)).status == "ok"
    spent = node.ledger.history
    refused = node.answer(ask(dep, config=other, round=1))
    assert refused.status == "refused"
    assert (
        "keeps every round of every run at the price of the first, 1 × (q 0.1, σ 1.857) and 1 × (q 0.1, σ 2)"
        in refused.reason
    )
    assert refused.reason.endswith('or ask the owner for a node with accountant = "filter"')
    assert node.ledger.history == spent
    assert node.answer(ask(dep, round=1)).status == "ok"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda b: replace(b, weights={**b.weights, "1.bias": torch.full((10,), torch.nan)}), "NaN or infinities"),
        (lambda b: replace(b, weights={**b.weights, "1.bias": torch.zeros(9)}), "is torch.float32 (9,), not"),
        (lambda b: replace(b, weights={**b.weights, "1.bias": torch.zeros(10).double()}), "is torch.float64"),
        (lambda b: replace(b, weights={}), "does not have the model's parameters"),
        (lambda b: replace(b, clip_scale=float("inf")), "clip_scale is inf"),
        (lambda b: replace(b, round=7), "a broadcast of round 7"),
    ],
)
def test_a_broadcast_that_does_not_fit_is_refused_before_anything_is_paid(secure, spoil, reason):
    question, method = ask(secure), secure.config.algorithm
    spoilt = to_bytes(spoil(from_bytes(method.Message, question.record)))
    answer = node_of(secure).answer(replace(question, record=spoilt))
    assert answer.status == "refused"
    assert reason in answer.reason
    assert list(node_of(secure).ledger.entries()) == []


@pytest.mark.parametrize(
    "record", [b"", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}", to_bytes(Broadcast(0, {}))]
)
def test_garbage_is_refused(secure, record):
    answer = node_of(secure).answer(replace(ask(secure), record=record))
    assert answer.status == "refused"


def test_a_corrupt_memory_is_named_and_the_ledger_stays(secure):
    from fedfdp.core.errors import RunError

    node_of(secure).answer(ask(secure))
    node_of(secure).book.close()
    path = secure.base / "client-0" / "state"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="is corrupt"):
        secure.start_node(100, "client-0")


def test_a_node_whose_ledger_is_gone_does_not_begin_a_new_one(secure):
    from fedfdp.core.errors import RunError

    node_of(secure).answer(ask(secure))
    node_of(secure).book.close()
    for path in (secure.base / "client-0").glob("ledger*"):
        path.unlink()
    with pytest.raises(RunError, match="shows 0 of 1 charges"):  # by the second copy
        secure.start_node(100, "client-0")
    for path in (secure.base / "client-0.witness", secure.base / "client-0" / "witnessed"):
        path.unlink()
    with pytest.raises(RunError, match="shows 0 of at least 1 charges"):  # by what it remembers of the last round
        secure.start_node(100, "client-0")


def test_a_node_file_is_read_with_its_paths_and_refuses_what_is_unsafe(tmp_path):
    text = 'name="n"\nserver="10.0.0.1:9092"\nfolder="state"\nkey="k"\ncertificate="c"\n[data]\nfile="d.npz"\n'
    (tmp_path / "node.toml").write_text(text)
    node = load_node(tmp_path / "node.toml")
    assert node.data.file == str(tmp_path / "d.npz")
    assert node.policy == Policy()
    for line, named in (("plain_text=true\n", "plain_text"), ("", "policy.unsafe_seeded")):
        extra = "[policy]\nunsafe_seeded=true\n" if not line else ""
        (tmp_path / "node.toml").write_text(line + text + extra)
        with pytest.raises(SettingError, match=named):
            load_node(tmp_path / "node.toml")
    (tmp_path / "node.toml").write_text(text + "[policy]\nmax_weigths=5\n")  # its limit would have no effect
    with pytest.raises(
        SettingError, match=r"^node\.policy\.max_weigths = 5: no such setting; did you mean 'max_weights'"
    ):
        load_node(tmp_path / "node.toml")
    with pytest.raises(SettingError, match="key = None"):
        NodeConfig("n", "127.0.0.1:1", "f", NodeData(file="d"))
    with pytest.raises(SettingError, match=r"policy\.max_q"):
        Policy(max_q=1.5)


def test_own_records_from_a_file_and_from_a_function(tmp_path, monkeypatch):
    import numpy as np

    from fedfdp.deploy.node import own_records

    x, y = np.arange(12.0, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:2], y_test=y[:2])
    from_file = own_records("n", NodeData(file=str(tmp_path / "d.npz"), classes=3)).federation
    assert (len(from_file.clients[0].train), len(from_file.clients[0].test), from_file.classes) == (6, 2, 3)
    (tmp_path / "hospital_records.py").write_text(
        "import numpy\ndef load():\n    return numpy.eye(4), numpy.arange(4)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from_loader = own_records("n", NodeData(loader="hospital_records:load", classes=4)).federation
    assert len(from_loader.clients[0].train) + len(from_loader.clients[0].test) == 4


def test_sizes_of_records(secure):
    """A record is refused by its size before it is parsed; the allowance follows from the model."""
    from fedfdp.engines.flower import checks

    template = weights_of(secure.federation)
    parameters = sum(t.numel() for t in template.values())
    assert checks.most_bytes(secure.config.algorithm.Reply, template) == 2 * 4 * parameters + 2**20
    upload = records.to_bytes(Judge(template))
    assert len(upload) < checks.most_bytes(Judge, template)


def test_targets_at_other_places_than_the_models_are_refused_before_a_round():
    """With privacy or without: a node whose pass fails takes part no more until its owner has looked."""
    y = torch.zeros(4, 1, 5, 5, dtype=torch.int64)
    federation = Federation.from_clients({"n": (torch.zeros(4, 1, 5, 5), y)}, task="segmentation", classes=2)
    model = {"name": "torch.nn:Conv2d", "arguments": {"in_channels": 1, "out_channels": 2, "kernel_size": 1}}
    with pytest.raises(SettingError, match=r"it needs a class for every place, \(records, 5, 5\)$"):
        build_model(model, federation, seed=0)


def test_words_beyond_a_models_table_end_the_start_and_no_question_asks_for_them(tmp_path, monkeypatch):
    """A coordinator that asks for one allowed model after the other would learn the largest token, at no price."""
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for words in (8, 6):
        config = transformers.BertConfig(vocab_size=words, max_position_embeddings=8, **size)
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / f"of-{words}")
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]] * 20)
    holder = Federation.from_clients({"n": (ids, torch.arange(40) % 2)}, classes=2)

    def started(*words: int) -> Node:
        policy = Policy(epsilon=8.0, max_q=0.2, models=tuple(f"hf:{tmp_path}/of-{n}" for n in words))
        return Node(
            NodeConfig("n", "127.0.0.1:1", str(tmp_path / "node"), NodeData(file="-"), plain_text=True, policy=policy),
            holder,
        )

    with pytest.raises(SettingError, match="its table has 6 words, the records have others"):
        started(8, 6)  # its ledger is closed again: the next one can open it
    node = started(8)
    monkeypatch.setattr("fedfdp.engines.flower.node.check_words", None)  # whoever calls it now fails
    model = {"name": f"hf:{tmp_path}/of-8"}
    privacy = {"epsilon": 8.0, "delta": 1e-5, "sigma": 2.0, "q": 0.1, "clip": 1.0, "sigma_loss": 5.0}
    terms = Terms({"name": "fedavg", "lr": 1.0}, model, privacy, None, 0).to_json()
    answer = node.answer(Question("train", "r", terms, 0, -1, b"no broadcast"))
    assert answer.status == "refused"
    assert answer.reason.startswith("not a valid Broadcast record")
    assert not node.stopped
    node.book.close()
