"""A cluster computes what one process computes; whoever is lost is asked again, and the driver alone pays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms.base import Population
from fedfdp.core.errors import SettingError
from fedfdp.core.weights import Weights
from fedfdp.data import ClientData
from fedfdp.engines.local import LocalEngine
from fedfdp.engines.ray.settings import Ray
from fedfdp.engines.ray.worker import moved
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure
from fedfdp.runs import config as configs
from fedfdp.training.protocols import Engine

ray = pytest.importorskip("ray")

PRIVATE = fedfdp.DPSGD(epsilon=20.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant="rdp", delta=1e-5)
METHOD = fedfdp.FedFDP(lr=1.0, server_lam=2.0)


def holders(sizes=(30, 10, 20, 40, 25, 35)):
    chance, found = torch.Generator().manual_seed(0), {}
    for number, size in enumerate(sizes):
        found[f"c{number}"] = (torch.randn(size + 10, 5, generator=chance), torch.arange(size + 10) % 3)
    return fedfdp.Federation.from_clients(found)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(engine=None, federation=None, **options):
    given = {"algorithm": METHOD, "privacy": PRIVATE, "rounds": 4, "eval_every": 2, "threads": 1}
    return fedfdp.train(net(), federation or holders(), engine=engine, **{**given, **options})


def bits(result):
    return [p.detach().numpy().tobytes() for p in result.model.parameters()]


# Without a cluster ----------------------------------------------------------------------------------------------------


def test_blocks_have_about_as_many_records_each():
    from fedfdp.engines.ray.engine import blocks

    sizes = [len(c.train) for c in holders().clients]
    for count in (1, 2, 3, 6):
        parts = blocks(holders().clients, count)
        assert [len(c.train) for part in parts for c in part] == sizes
        assert len(parts) == count
    two = [sum(len(c.train) for c in part) for part in blocks(holders((10,) * 100).clients, 2)]
    assert two[0] == two[1]


def test_a_record_is_moved_only_where_it_must_be():
    upload = fedfdp.algorithms.base.Upload("a", 3, Weights.of({"w": torch.ones(2)}))
    assert moved(upload, torch.device("cpu")) is upload
    assert moved(upload, torch.device("meta")).update["w"].device.type == "meta"


@pytest.mark.parametrize("bad", [{"workers": 0}, {"cpus": 0.0}, {"gpus": -1.0}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=f"ray.{next(iter(bad))} = "):
        Ray(**bad)


def test_a_config_chooses_it_and_the_cluster_is_no_part_of_what_is_computed():
    one, other = (configs.load("digits", ["engine=ray", f"ray.workers={n}"]) for n in (1, 2))
    assert one.ray == Ray(workers=1)
    assert one.fingerprint() == other.fingerprint()


# With a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    from fedfdp.engines.ray.engine import connect

    connect(None)
    yield
    ray.shutdown()


class InTwo(LocalEngine):
    """In one process, with the groups that two workers have."""

    def _waves(self, clients: "list[ClientData]"):
        from fedfdp.engines.ray.engine import blocks

        first = {client.name for client in blocks(self.federation.clients, 2)[0]}
        yield from super()._waves([client for client in clients if client.name in first])
        yield from super()._waves([client for client in clients if client.name not in first])


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PRIVATE, None], ids=["private", "plain"])
def test_the_same_bits_and_ledgers_as_one_process(cluster, tmp_path, privacy):
    local = trained(InTwo, privacy=privacy, out=tmp_path / "local")
    spread = trained(Ray(workers=2), privacy=privacy, out=tmp_path / "ray")
    assert bits(local) == bits(spread)
    assert local.summary["psi_local"] == spread.summary["psi_local"]
    if privacy is not None:
        files = [tmp_path / name / "ledger.jsonl" for name in ("local", "ray")]
        paid = [[json.loads(line) for line in file.read_text().splitlines()[1:]] for file in files]
        assert [{**entry, "sum": ""} for entry in paid[0]] == [{**entry, "sum": ""} for entry in paid[1]]


def round_of(engine: Engine, federation, learner):
    population = Population(len(federation), sum(federation.sizes), min(federation.sizes), 3)
    broadcast = METHOD.broadcast(METHOD.init(learner.initial(), population, PRIVATE))
    uploads = [upload for upload, _ in engine.round(broadcast, {})]
    return [(u.client, u.loss, torch.cat([t.flatten() for t in u.update.values()])) for u in uploads]


def killed_when_asked(engine):
    """Kills the process of the second worker as soon as it is asked."""
    pid, ask = ray.get(engine.workers[1].__ray_call__.remote(lambda worker: os.getpid())), engine._ask

    def asked(question, watch):
        sent = ask(question, watch)
        if question.home == 1:
            engine._ask = ask
            os.kill(pid, signal.SIGKILL)
        return sent

    engine._ask = asked


@pytest.mark.slow
def test_with_other_groups_uploads_are_the_same_but_for_rounding(cluster):
    federation, learner = holders(), Learner(net(), cross_entropy)
    given = {"privacy": PRIVATE, "randomness": Seeded(3), "book": None}
    whole = round_of(LocalEngine(federation, learner, METHOD, **given), federation, learner)
    engine = Ray(workers=2)(federation, learner, METHOD, **given)
    parts = round_of(engine, federation, learner)
    engine.close()
    for (a, loss, update), (b, loss_too, update_too) in zip(whole, parts, strict=True):
        assert (a, loss) == (b, pytest.approx(loss_too, abs=1e-6))
        assert torch.allclose(update, update_too, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_workers_take_turns_with_the_bits_of_the_same_groups_in_one_process(cluster, monkeypatch):
    monkeypatch.setattr("fedfdp.engines.local.WAVE_RECORDS", 13)  # two clients in a group
    monkeypatch.setattr("fedfdp.engines.ray.engine.AHEAD", 1)
    federation, learner = holders((30,) * 12), Learner(net(), cross_entropy)
    given = {"privacy": PRIVATE, "randomness": Seeded(3), "book": None}
    engine = Ray(workers=2)(federation, learner, METHOD, **given)
    here = LocalEngine(federation, learner, METHOD, **given)
    here._waves = engine._waves
    parts, whole = (round_of(one, federation, learner) for one in (engine, here))
    engine.close()
    assert [engine.home[name] for name, *_ in parts] == [0, 0, 1, 1] * 3
    assert all(a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(parts, whole, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("source", [Seeded(3), Secure()], ids=["seeded", "secure"])
def test_a_worker_that_is_killed_in_mid_round_changes_nothing(cluster, source):
    federation, learner = holders(), Learner(net(), cross_entropy)
    budgets = dict.fromkeys(federation.names, 20.0)
    found, charged = [], []
    for kill in (False, True):
        book = LedgerBook.open(None, data="d", config="c", delta=1e-5, accountant="rdp", budgets=budgets)
        engine = Ray(workers=2)(federation, learner, METHOD, privacy=PRIVATE, randomness=source, book=book)
        if kill:
            killed_when_asked(engine)
        found.append(round_of(engine, federation, learner))
        charged.append(book.charged())
        engine.close()
    assert [name for name, *_ in found[1]] == list(federation.names)
    if source.repeatable:
        assert all(torch.equal(a[2], b[2]) and a[1] == b[1] for a, b in zip(*found, strict=True))
        assert charged[0] == charged[1]
    else:  # the second answer of a client is another release, and paid for
        assert charged[1] >= charged[0] + 1


@pytest.mark.slow
def test_a_driver_that_is_killed_and_resumed_ends_with_the_same_bits(tmp_path):
    script = tmp_path / "driver.py"
    here = Path(__file__).parent
    script.write_text(
        f"import sys, os, signal\nsys.path.insert(0, {str(here)!r})\nfrom test_ray import *\n"
        "import fedfdp.runs.session as session\nsession.CHECKPOINT_SECONDS = 0.0\n"
        "def update(u):\n"
        "    if sys.argv[2] == 'kill' and u.step.round == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    trained(Ray(workers=2), out=sys.argv[1], resume=sys.argv[2] == 'resume', on_update=update)\n"
    )

    def run(folder, how):
        return subprocess.run([sys.executable, script, tmp_path / folder, how], timeout=600, check=False).returncode

    assert run("cut", "kill") == -signal.SIGKILL
    assert run("cut", "resume") == 0
    assert run("whole", "through") == 0
    for name in ("model.safetensors", "metrics.jsonl", "ledger.jsonl", "privacy.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_sweep_goes_over_the_cluster(cluster, tmp_path):
    from fedfdp.runs.store import Store
    from fedfdp.runs.sweep import sweep

    runs = [configs.load("digits", ["rounds=2", f"seed={seed}"]).resolved(None) for seed in (0, 1)]
    said = []
    assert sweep(runs, Store(tmp_path), ray="auto", watch=said.append) == {}
    assert all(Store(tmp_path).finished(one) for one in runs)
    assert [one.state for one in said].count("done") == 2
