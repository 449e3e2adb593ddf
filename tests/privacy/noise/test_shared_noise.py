"""Two different runs with one seed never meet the same noise; the same run again gives the same bits."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.core.errors import RunError
from fedfdp.core.records import to_bytes
from fedfdp.engines.local import LocalEngine
from fedfdp.privacy.noise.randomness import Seeded

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=None, sigma=2.0, q=0.5, clip=10.0, sigma_loss=5.0)


def holders(first: float = 1.0) -> fedfdp.Federation:
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=chance), torch.arange(60) % 2
    x[0, 0] = first
    given = {"north": (x[:40], y[:40], x[:1], y[:1]), "south": (x[40:], y[40:], x[:1], y[:1])}
    return fedfdp.Federation.from_clients(given)


class Net(nn.Module):
    def __init__(self, by: float = 1.0, frozen: float = 0.5, start: float = 0.1) -> None:
        super().__init__()
        self.still, self.linear, self.by = nn.Linear(4, 4, bias=False), nn.Linear(4, 2), by
        nn.init.constant_(self.still.weight, frozen).requires_grad_(False)
        nn.init.constant_(self.linear.weight, start)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.still(x)) * self.by


def weighted(by: float):
    def loss(output: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, y, reduction="none") * by

    return loss


class Twice(fedfdp.FedAvg):
    def local(self, broadcast, memory, client):
        upload, memory = super().local(broadcast, memory, client)
        return replace(upload, update={name: 2 * update for name, update in upload.update.items()}), memory


def run(**changes: Any) -> fedfdp.Result:
    settings = {"algorithm": fedfdp.FedAvg(lr=1.0), "privacy": PRIVATE, "rounds": 2, "seed": 3, "loss": weighted(1.0)}
    net, federation = changes.pop("model", None) or Net(), changes.pop("federation", None) or holders()
    return fedfdp.train(net, federation, **{**settings, **changes})


def test_another_bound_does_not_give_the_gradient_away():
    """q = 1 and bounds that no gradient reaches: with shared noise z, 4·(S + σCz) − (S + 4σCz) is 3·S exactly."""
    federation, net = holders(), Net()
    once = {"federation": federation, "rounds": 1, "algorithm": fedfdp.FedAvg(lr=1.0)}
    found = []
    for clip in (10.0, 40.0):
        trained = run(**once, privacy=replace(PRIVATE, q=1.0, clip=clip)).model.linear.weight
        found.append((net.linear.weight - trained).detach().double())
    shown = (4 * found[0] - found[1]) / 3
    x, y = (
        torch.cat([c.train.take()[0] for c in federation.clients]),
        torch.cat([c.train.take()[1] for c in federation.clients]),
    )
    weighted(1.0)(net(x), y).mean().backward()
    off = (shown - net.linear.weight.grad.double()).flatten()
    # Independent: of variance ((4·σ·10)² + (σ·40)²)/9, over 60 records in all: the sum of two clients' noise.
    deviation = (2 * (2.0 * 40.0) ** 2 / 9) ** 0.5 * 2**0.5 / 60
    assert 0.4 < float(off.square().mean().sqrt()) / deviation < 1.7  # eight numbers; shared noise gave 2e-7


@pytest.fixture
def watched(monkeypatch):
    """Runs, each as the streams it drew from and the uploads it gave, by client and round."""
    streams: dict[tuple[str, int], set[bytes]] = {}
    uploads: dict[tuple[str, int], bytes] = {}
    name, rounds = Seeded._name, LocalEngine.round

    def note(self, key):
        made = name(self, key)
        if not key.purpose.startswith(("dropout", "pass", "watch")):
            streams.setdefault((key.client, key.round), set()).add(made)
        return made

    def keep(self, broadcast, *arguments, **options):
        for upload, memory in rounds(self, broadcast, *arguments, **options):
            uploads[upload.client, broadcast.round] = to_bytes(upload)
            yield upload, memory

    monkeypatch.setattr(Seeded, "_name", note)
    monkeypatch.setattr(LocalEngine, "round", keep)

    def play(**changes):
        streams.clear()
        uploads.clear()
        run(**changes)
        return dict(streams), dict(uploads)

    return play


OTHERS: dict[str, dict[str, Any]] = {
    "clip": {"privacy": replace(PRIVATE, clip=40.0)},
    "sigma": {"privacy": replace(PRIVATE, sigma=4.0)},
    "q": {"privacy": replace(PRIVATE, q=0.25)},
    "lr": {"algorithm": fedfdp.FedAvg(lr=2.0)},
    "local steps": {"algorithm": fedfdp.FedAvg(lr=1.0, local_steps=2)},
    "method": {"algorithm": fedfdp.FedProx(lr=1.0)},
    "method's code": {"algorithm": Twice(lr=1.0)},
    "loss": {"loss": weighted(2.0)},
    "model": {"model": Net(by=2.0)},
    "frozen": {"model": Net(frozen=0.25)},
    "start": {"model": Net(start=0.2)},
    "a record": {"federation": holders(first=2.0)},
    "seed": {"seed": 4},
    "fused": {"fused": False},
}
ALIKE: dict[str, dict[str, Any]] = {
    "again": {},
    "longer": {"rounds": 3},
    "looked at more often": {"eval_every": 1},
    "server": {"server": fedfdp.ServerOptimizer(average=0.5)},
    "only one takes part": {"participation": fedfdp.Participation(fraction=0.5)},
}


def test_runs_share_a_stream_only_where_they_give_the_same_answer(watched):
    played = {name: watched(**changes) for name, changes in {**OTHERS, **ALIKE}.items()}
    for (one, (drawn, gave)), (other, (drew, given)) in itertools.combinations(played.items(), 2):
        for at in drawn.keys() & drew.keys():
            if drawn[at] & drew[at]:
                assert gave[at] == given[at], f"{one} and {other} share noise at {at}"
    again, gave = played["again"]
    assert all(len(names) == 2 for names in again.values())  # one batch, one noise
    for name in OTHERS:
        drawn, given = played[name]
        touched = {at for at in again if name != "a record" or at == ("north", 0) or at[1] > 0}
        assert not any(again[at] & drawn[at] for at in touched), name
    for name in ("longer", "looked at more often"):
        assert {at: played[name][1][at] for at in gave} == gave, name


def test_ranges_of_other_counts_take_other_noise():
    import numpy as np

    from fedfdp.data.private_ranges import released

    counts = np.array([5.0, 0.0, 3.0])
    more = counts + np.array([0.0, 1.0, 0.0])
    noise = released(counts, 1, 4.0, Seeded(0), "north") - counts
    assert np.array_equal(released(counts, 1, 4.0, Seeded(0), "north") - counts, noise)
    assert np.abs(released(more, 1, 4.0, Seeded(0), "north") - more - noise).min() > 1e-3
    assert np.abs((released(counts, 1, 8.0, Seeded(0), "north") - counts) / 2 - noise).min() > 1e-3


def stop(update):
    if update.step.round == 1:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("what", "changes"),
    [("loss", {"loss": weighted(2.0)}), ("model", {"model": Net(by=2.0)}), ("model", {"model": Net(frozen=0.25)})],
)
def test_a_run_goes_on_only_with_what_computes_the_same(tmp_path, what, changes):
    """A closure's number, or an attribute that `repr` does not show, makes another run of it."""
    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path / "run", on_update=stop, eval_every=1)
    with pytest.raises(RunError, match=f"was started with another {what}: .*; resume it with that {what}"):
        run(out=tmp_path / "run", resume=True, eval_every=1, **changes)
    gone_on = run(out=tmp_path / "run", resume=True, eval_every=1)
    assert all(map(torch.equal, gone_on.model.parameters(), run().model.parameters()))


def test_what_cannot_be_identified_runs_once_and_is_not_resumed(tmp_path):
    odd = weighted(1.0)
    odd.source = (number for number in [1.0])  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match=r"loss.source \(generator\) cannot be identified: this run cannot be resumed"):
        one = run(loss=odd)
    with pytest.warns(UserWarning, match="cannot be identified"), pytest.raises(KeyboardInterrupt):
        run(loss=odd, out=tmp_path / "run", on_update=stop, eval_every=1)
    with pytest.warns(UserWarning, match="cannot be identified"):
        other = run(loss=odd)
    assert not torch.equal(one.model.linear.weight, other.model.linear.weight)  # never the same noise
    with pytest.raises(RunError, match=r"run cannot be resumed: loss.source \(generator\) cannot be compared"):
        run(loss=odd, out=tmp_path / "run", resume=True, eval_every=1)
