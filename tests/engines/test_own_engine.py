"""An engine of one's own through `fedfdp.train`: the same bits as the local one where it computes the same."""

import json

import pytest
import torch

import fedfdp
from fedfdp.core.errors import FedFDPError, RunError, SettingError
from fedfdp.core.records import from_bytes, to_bytes
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.models import build
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.training.protocols import Engine, EngineFacts

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, q=0.2, clip=0.5, sigma_loss=5.0)


class ByMail(Engine):
    """Everything that passes between server and clients goes through bytes, as over a network."""

    def __init__(self, federation, learner, algorithm, *, privacy, randomness, book, fused):
        self.method = algorithm
        self.clients = LocalEngine(
            federation, learner, algorithm, privacy=privacy, randomness=randomness, book=book, fused=fused
        )

    def round(self, broadcast, memories, asked=None, *, watch=False):
        sent = from_bytes(self.method.Message, to_bytes(broadcast))
        for upload, memory in self.clients.round(sent, memories, asked, watch=watch):
            yield from_bytes(self.method.Reply, to_bytes(upload)), from_bytes(self.method.Memory, to_bytes(memory))
        self.unable, self.local_losses = self.clients.unable, self.clients.local_losses

    def facts(self):
        return EngineFacts(summary={"engine": "mail"}, remarks=("every letter arrived",))


class Backwards(LocalEngine):
    """Asks the last client first, one after the other."""

    def round(self, broadcast, memories, asked=None, *, watch=False):
        for name in reversed(self.federation.names if asked is None else asked):
            yield from super().round(broadcast, memories, [name], watch=watch)


class Free(LocalEngine):
    """Forgets to charge anyone."""

    def __init__(self, *args, book, **more):
        super().__init__(*args, book=None, **more)


def run(federation: Federation, **options) -> fedfdp.Result:
    model = build("linear", input_shape=federation.input_shape, outputs=10, seed=1)
    settings = {"algorithm": fedfdp.FedFDP(lr=0.5), "privacy": PRIVATE, "rounds": 6, "eval_every": 2, "seed": 5}
    return fedfdp.train(model, federation, **(settings | options))


def stop_at(round):
    def stop(update) -> None:
        if update.step.round == round:
            raise KeyboardInterrupt

    return stop


def charges(folder):
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()[1:]]
    return [(line["client"], line["round"], line["events"]) for line in lines]


@pytest.mark.parametrize("method", [fedfdp.FedFDP(lr=0.5), fedfdp.Scaffold(lr=0.5, local_steps=2)], ids=["fdp", "sc"])
def test_it_runs_to_the_bits_of_the_local_engine_with_ledger_statement_and_folder(digits, tmp_path, method):
    own = run(digits, algorithm=method, engine=ByMail, out=tmp_path / "own")
    local = run(digits, algorithm=method, engine="local", out=tmp_path / "local")
    files = {name: [(tmp_path / who / name).read_bytes() for who in ("own", "local")] for name in
             ("model.safetensors", "metrics.jsonl", "clients.json")}  # fmt: skip
    assert all(one == other for one, other in files.values())
    assert charges(tmp_path / "own") == charges(tmp_path / "local")
    assert own.summary["epsilon"] == local.summary["epsilon"] > 0
    assert own.summary["psi_local"] == local.summary["psi_local"]
    assert (own.summary["engine"], "engine" in local.summary) == ("mail", False)
    said = json.loads((tmp_path / "own" / "privacy.json").read_text())
    assert said["epsilon"] == own.summary["epsilon"]
    assert said["remarks"] == ["every letter arrived"]
    assert "every letter arrived" in (tmp_path / "own" / "privacy.md").read_text()


def test_it_is_resumed_to_the_same_bits_and_pays_once(digits, tmp_path):
    whole = run(digits, engine=ByMail, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(digits, engine=ByMail, out=tmp_path / "cut", on_update=stop_at(3))
    resumed = run(digits, engine=ByMail, out=tmp_path / "cut", resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))
    assert charges(tmp_path / "cut") == charges(tmp_path / "whole")


@pytest.mark.parametrize(("first", "then"), [(ByMail, "local"), ("local", ByMail), (ByMail, Backwards)])
def test_a_run_is_not_resumed_by_another_engine(digits, tmp_path, first, then):
    """It might compute something else with the noise of a round that is paid for."""
    with pytest.raises(KeyboardInterrupt):
        run(digits, engine=first, out=tmp_path / "run", on_update=stop_at(3))
    with pytest.raises(RunError, match="belongs to another run: its settings is"):
        run(digits, engine=then, out=tmp_path / "run", resume=True)


def test_a_run_is_not_resumed_by_an_engine_whose_code_was_changed(digits, tmp_path):
    def engine_of(pause):
        class Changed(LocalEngine):
            def round(self, *args, **more):
                assert pause
                return super().round(*args, **more)

        return Changed

    with pytest.raises(KeyboardInterrupt):
        run(digits, engine=engine_of(1), out=tmp_path / "run", on_update=stop_at(3))
    with pytest.raises(RunError, match="was started with another engine: its code"):
        run(digits, engine=engine_of(2), out=tmp_path / "run", resume=True)


def test_clients_may_answer_in_any_order(digits, tmp_path):
    """Σ p_i u_i in another order: the same but for rounding. Every client is charged as before.

    One round: the next one's noise is drawn for the weights as they are, to the last bit.
    """
    backwards = run(digits, engine=Backwards, fused=False, rounds=1, out=tmp_path / "backwards")
    local = run(digits, fused=False, rounds=1, out=tmp_path / "local")
    assert sorted(charges(tmp_path / "backwards")) == sorted(charges(tmp_path / "local"))
    assert [name for name, _, _ in charges(tmp_path / "backwards")] == list(reversed(digits.names))
    for one, other in zip(backwards.model.parameters(), local.model.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)


def test_an_engine_that_charges_nobody_states_no_epsilon(digits, tmp_path):
    with pytest.raises(
        FedFDPError, match=r"engine Free has uploads of 8 events, and the ledgers show 0: it must charge"
    ):
        run(digits, engine=Free, out=tmp_path / "run")
    assert not (tmp_path / "run" / "privacy.json").exists()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_by_import_path_from_python_and_from_a_config(digits, tmp_path, monkeypatch):
    (tmp_path / "post.py").write_text("from fedfdp.engines.local import LocalEngine\nclass Post(LocalEngine): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(digits, engine="post:Post").summary["epsilon"] == run(digits).summary["epsilon"]
    tiny = ["rounds=1", "model.name=linear", "data.fraction=0.2"]
    config = configs.load("digits", [*tiny, "engine=post:Post"])
    here = launch(configs.load("digits", tiny))
    there = launch(config, out=tmp_path / "run")
    assert 'engine = "post:Post"' in (tmp_path / "run" / "config.toml").read_text()
    assert all(torch.equal(a, b) for a, b in zip(here.model.parameters(), there.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("locale", "engine = 'locale': did you mean 'local'? known: flower, local, ray; or package.module:Class"),
        ("nowhere:Engine", "engine = 'nowhere:Engine': cannot be imported: No module named 'nowhere'"),
        ("flower", "engine = 'flower': not run by this command; start it with fedfdp server"),
        (7, "engine = 7: not an engine's name or a class"),
        (lambda *parts, **more: "none", "engine = <class 'str'>: what it makes is no engine; derive it from fedfdp."),
    ],
)
def test_what_is_no_engine_is_one_line(digits, engine, said):
    with pytest.raises(SettingError) as error:
        run(digits, engine=engine)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
