"""A cluster computes what one process computes; whoever is lost is asked again, and the driver alone pays."""

import json
import os
import signal
import socket
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


@pytest.mark.parametrize("bad", [{"workers": 0}, {"cpus": 0.0}, {"gpus": -1.0}, {"gpus": 1.5}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=f"ray.{next(iter(bad))} = "):
        Ray(**bad)


def test_a_config_chooses_it_and_the_cluster_is_no_part_of_what_is_computed():
    one, other = (configs.load("digits", ["engine=ray", f"ray.workers={n}"]) for n in (1, 2))
    assert one.ray == Ray(workers=1)
    assert one.fingerprint() == other.fingerprint()


# Machines of made-up clusters, and who fits: worked out by hand.
ONE = [{"CPU": 2.0}]
APART = [{"CPU": 2.0}, {"CPU": 3.0}, {}]  # the third has no cores, as a head often has none
CARDS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}]


@pytest.fixture
def made_up(monkeypatch):
    """Makes Ray say that it is connected to these machines, and one more that is down; what was ended."""
    ended = []

    def cluster(machines, *, before=True):
        rows = [{"Alive": True, "Resources": one} for one in machines]
        rows.append({"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}})
        monkeypatch.setattr(ray, "nodes", lambda: rows)
        monkeypatch.setattr(ray, "is_initialized", lambda: before)
        monkeypatch.setattr(ray, "init", lambda **given: None)
        monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
        return ended

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return cluster


@pytest.mark.parametrize(
    ("machines", "settings", "clients", "workers"),
    [
        (ONE, Ray(), 6, 2),
        (ONE, Ray(workers=2), 6, 2),
        (ONE, Ray(workers=4), 2, 2),  # there is a client for two of them only
        (ONE, Ray(cpus=0.5), 6, 4),
        (APART, Ray(), 6, 5),
        (APART, Ray(cpus=2), 6, 2),  # 5 cores, but no two machines share a worker
        (CARDS, Ray(gpus=1), 6, 2),
        (CARDS, Ray(gpus=0.6), 6, 2),  # 2 / 0.6 is 3, but no two cards share a worker
        (CARDS, Ray(gpus=0.1), 60, 8),  # room for 20 on the cards, for 8 on their machine's cores
    ],
)
def test_as_many_workers_as_the_cluster_holds(made_up, machines, settings, clients, workers):
    from fedfdp.engines.ray.cluster import workers_for

    made_up(machines)
    assert workers_for(settings, clients) == workers


@pytest.mark.parametrize(
    ("machines", "settings", "said"),
    [
        (
            ONE,
            Ray(workers=4),
            r"ray.workers = 4: the cluster has 2 cores .* room for 2 .*; set ray.workers=2, or",
        ),
        (CARDS, Ray(workers=3, gpus=1), r"ray.workers = 3: .* 16 cores and 2 graphics .* set ray.workers=2, or leave"),
        (ONE, Ray(gpus=1), r"ray.gpus = 1: the cluster has 2 cores and 0 graphics .*; set ray.gpus=0, which"),
        (CARDS, Ray(gpus=3), r"ray.gpus = 3: .*; set ray.gpus=2 or less"),
        ([{"CPU": 1.0, "GPU": 4.0}, {"CPU": 8.0}], Ray(cpus=2, gpus=1), r"ray.gpus = 1: .*; set ray.gpus=0, which"),
        (ONE, Ray(cpus=4), r"ray.cpus = 4: the cluster has 2 cores .*; set ray.cpus=2 or less"),
        (APART, Ray(cpus=4), r"ray.cpus = 4: the cluster has 5 cores .*; set ray.cpus=3 or less"),
        ([{}], Ray(), r"ray.cpus = 1.0: the cluster has 0 cores .*; add a machine with cores"),
    ],
)
def test_workers_that_the_cluster_cannot_hold_are_refused_before_there_is_a_folder(
    made_up, tmp_path, machines, settings, said
):
    made_up(machines)
    with pytest.raises(SettingError, match=said):
        trained(settings, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_was_started_for_a_refused_run_is_ended(made_up):
    ended = made_up(ONE, before=False)
    with pytest.raises(SettingError, match=r"ray.workers = 4"):
        trained(Ray(workers=4))
    assert ended == [True]


def test_a_sweep_over_a_cluster_without_cores_is_refused(made_up, tmp_path):
    from fedfdp.runs.store import Store
    from fedfdp.runs.sweep import sweep

    made_up([{}])
    with pytest.raises(SettingError, match="ray = 'auto': no machine of this cluster has a core"):
        sweep([configs.load("digits").resolved(None)], Store(tmp_path), ray="auto")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def silent(monkeypatch):
    """An address where nothing listens. Ray is not asked: it would wait there for minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **given: pytest.fail(f"asked Ray for {given}"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("before", ["", "ray://"])
def test_an_address_where_nothing_answers_is_refused_before_there_is_a_folder(silent, tmp_path, before):
    address = before + silent
    with pytest.raises(SettingError, match=f"ray.address = '{address}': no cluster: nothing answers there"):
        trained(Ray(address=address), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_so_is_one_of_the_environment(silent, monkeypatch):
    from fedfdp.engines.ray.cluster import connect

    monkeypatch.setenv("RAY_ADDRESS", silent)
    for address in (None, "auto"):  # Ray, too, reads auto so
        with pytest.raises(SettingError, match=f"RAY_ADDRESS = '{silent}': no cluster: nothing answers there"):
            connect(address)


def test_so_is_one_of_a_sweep(silent, tmp_path):
    from fedfdp.runs.store import Store
    from fedfdp.runs.sweep import sweep

    with pytest.raises(SettingError, match=f"ray = '{silent}': no cluster: nothing answers there"):
        sweep([configs.load("digits").resolved(None)], Store(tmp_path / "runs"), ray=silent)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["127.0.0.1:here", "127.0.0.1:70000", "127.0.0.1:"])
def test_an_address_without_a_usable_port_is_refused(address):
    from fedfdp.engines.ray.cluster import check_answers

    with pytest.raises(SettingError, match=f"ray.address = '{address}'"):
        check_answers(address)


def test_one_that_answers_is_left_to_ray_and_so_is_one_that_is_no_host_and_port():
    from fedfdp.engines.ray.cluster import check_answers

    with socket.create_server(("127.0.0.1", 0)) as listening:
        check_answers(f"127.0.0.1:{listening.getsockname()[1]}")
    for address in ("auto", "local", "anyscale://mine:1"):
        check_answers(address)


# With a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    from fedfdp.engines.ray.cluster import connect

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
def test_a_real_cluster_refuses_more_workers_than_it_has_cores(cluster, tmp_path):
    cores = int(ray.cluster_resources()["CPU"])
    for settings, name in ((Ray(workers=cores + 1), "workers"), (Ray(cpus=cores + 1), "cpus"), (Ray(gpus=64), "gpus")):
        with pytest.raises(SettingError, match=f"ray.{name} = .*: the cluster has {cores} core"):
            trained(settings, holders((10,) * (cores + 1)), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


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
    for name in ("model.safetensors", "metrics.jsonl", "ledger.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    stated = [json.loads((tmp_path / folder / "privacy.json").read_text()) for folder in ("cut", "whole")]
    assert [{**one, "date": ""} for one in stated] == [{**stated[1], "date": ""}] * 2


@pytest.mark.slow
def test_a_sweep_goes_over_the_cluster(cluster, tmp_path):
    from fedfdp.runs.store import Store
    from fedfdp.runs.sweep import sweep

    runs = [configs.load("digits", ["rounds=2", f"seed={seed}"]).resolved(None) for seed in (0, 1)]
    said = []
    assert sweep(runs, Store(tmp_path), ray="auto", watch=said.append) == {}
    assert all(Store(tmp_path).finished(one) for one in runs)
    assert [one.state for one in said].count("done") == 2
