"""fedfdp.bench: all private peers do the same work, ratios are taken within a repetition, memory is the step's own."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedfdp.bench import measure as m
from fedfdp.bench import rounds
from fedfdp.bench.cases import RoundCase, StepCase, select
from fedfdp.bench.memory import peak
from fedfdp.bench.models import MODELS
from fedfdp.bench.peers import STEP_PEERS, Setting
from fedfdp.bench.suite import Row, choose, measure
from fedfdp.bench.tables import grids, markdown, notes, write_markdown
from fedfdp.core.errors import SettingError
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy

QUIET = Setting(clip=1.0, sigma=1e-12, sigma_loss=1e-12, lr=10.0)  # no noise to speak of, and steps above rounding
PRIVATE = [peer for peer in STEP_PEERS if peer != "plain"]


def moved(case, peer):
    """Every weight's −Δw of one step, as one vector, in the order of names."""
    built = case.build(peer)
    before = built.weights()
    built.prepare()
    built.step()
    after = built.weights()
    return torch.cat([(before[name] - after[name]).double().flatten() for name in sorted(before)])


def per_record(case):
    """Every record's own gradient by autograd, one row a record, weights in the order of names."""
    subject = MODELS[case.model]
    model, (x, y) = subject.build(), subject.records(case.batch)
    parameters = [p for _, p in sorted(model.named_parameters())]
    losses = [cross_entropy(model(x[j : j + 1]), y[j : j + 1]).sum() for j in range(len(x))]
    rows = [torch.autograd.grad(loss, parameters) for loss in losses]
    return torch.stack([torch.cat([g.double().flatten() for g in row]) for row in rows])


def test_the_models_are_those_that_are_named():
    sizes = {name: sum(p.numel() for p in subject.build().parameters()) for name, subject in MODELS.items()}
    layer = 4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64  # attention, feed-forward, two norms
    assert sizes == {
        "mnist-cnn": 582_026,
        "cifar-cnn": 878_538,
        "mlp": 785 * 512 + 513 * 256 + 257 * 10,
        "transformer": 2 * layer + 65 * 10,
        "small-cnn": 26_010,
    }


# Opacus' own attention layer, which it puts in the place of torch's, mixes up heads and places (see below): on the
# transformer it does the same work and gets another result.
@pytest.mark.parametrize(
    ("model", "peer"),
    [
        (model, peer)
        for model in ("mnist-cnn", "cifar-cnn", "mlp", "transformer")
        for peer in PRIVATE
        if not (model == "transformer" and peer.startswith("opacus"))
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_private_peer_computes_the_same_update(model, peer):
    if peer.startswith("opacus"):
        pytest.importorskip("opacus")
    case = StepCase(model, 3, QUIET)
    gradients = per_record(case)
    norms = gradients.norm(dim=1)
    assert norms.min() > 0.01  # above this Opacus' 1e-6 under the fraction is no difference
    clipped = (gradients * (QUIET.clip / norms).clamp(max=1)[:, None]).sum(0)
    found = moved(case, peer) * case.batch / QUIET.lr
    assert (found - clipped).norm() <= 1e-4 * clipped.norm()


def test_something_is_clipped_in_that_comparison():
    assert all(per_record(StepCase(model, 3, QUIET)).norm(dim=1).max() > QUIET.clip for model in ("mnist-cnn", "mlp"))


def test_plain_is_plain():
    case = StepCase("mlp", 3, QUIET)
    torch.testing.assert_close(moved(case, "plain"), QUIET.lr * per_record(case).mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("peer", PRIVATE)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_private_peer_adds_the_noise(peer):
    if peer.startswith("opacus"):
        pytest.importorskip("opacus")
    torch.manual_seed(0)
    setting = Setting(clip=0.1, sigma=2.0, lr=10.0)
    update = moved(StepCase("mlp", 4, setting), peer)
    # The sum has norm 0.4 at most, the noise 0.2·√535,818 = 146: the update's deviation is the noise's.
    assert float(update.std()) == pytest.approx(10.0 * 0.2 / 4, rel=0.01)


def test_opacus_attention_is_not_torchs_with_the_batch_first():
    layers = pytest.importorskip("opacus.layers")
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    for first, same in ((False, True), (True, False)):
        right = nn.MultiheadAttention(8, 2, batch_first=first)
        other = layers.DPMultiheadAttention(8, 2, batch_first=first)
        other.load_state_dict(right.state_dict())
        given = x if first else x.transpose(0, 1)
        assert torch.allclose(right(given, given, given)[0], other(given, given, given)[0], atol=1e-5) == same


@pytest.mark.parametrize("peer", ["ours", "opacus_hooks"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rounds_of_both_kinds_move_the_weights_alike(peer):
    if peer == "opacus_hooks":
        pytest.importorskip("opacus")
    case = RoundCase("small-cnn", 16, 16, QUIET)
    task = rounds.Task(MODELS["small-cnn"], 16, 16, QUIET)
    drawn = rounds.PlainPass(task)
    drawn.prepare()
    assert any(not len(rows) for rows in drawn.drawn)  # an empty batch is among them
    learner, total, weight = Learner(MODELS["small-cnn"].build(), cross_entropy), 0.0, 0.0
    start = learner.initial()
    for rows in drawn.drawn:
        x, y = task.federation.x[rows], task.federation.y[rows]
        part = learner.clipped(start, x, y, PlainClip(QUIET.clip))
        loss = float(part.losses.clamp(0, 2.5).sum())  # over q·n = 0.25·4 = 1
        smooth = 0.9 * np.log(10) + 0.1 * loss
        omega = 4 * np.clip(1 + 5.0 * (smooth - np.log(10)), 0.1, 10.0)
        total += omega * torch.cat([part.grads[name].double().flatten() for name in sorted(start)]) * QUIET.lr
        weight += omega
    expected = total / weight
    assert (moved(case, peer) - expected).norm() <= 1e-4 * expected.norm()


def test_all_peers_of_a_round_see_the_same_samples():
    task = rounds.Task(MODELS["small-cnn"], 4, 8, QUIET)
    plain, ours = rounds.PlainPass(task), rounds.OurRound(task)
    seen = []
    clipped = ours.learner.clipped
    ours.learner.clipped = lambda w, x, y, *rest: seen.append(x) or clipped(w, x, y, *rest)
    for _ in range(2):
        plain.prepare()
        ours.prepare()
        ours.step()
        assert torch.equal(seen.pop(), task.federation.x[torch.cat(plain.drawn)])


class Sleeper:
    """A peer on a clock of its own."""

    def __init__(self, clock, *seconds):
        self.clock, self.seconds, self.steps = clock, seconds, 0

    def prepare(self):
        self.clock[0] += 100.0

    def step(self):
        self.clock[0] += self.seconds[self.steps % len(self.seconds)]
        self.steps += 1


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(m.time, "perf_counter", lambda: now[0])
    return now


def test_ratios_are_those_of_a_repetition(clock):
    # The machine is ten times slower in every other repetition; both feel it, and the ratio does not.
    peers = {"plain": Sleeper(clock, 10.0, 1.0), "ours": Sleeper(clock, 20.0, 2.0)}
    found = m.interleaved(peers, seconds=66.0)
    assert (found["plain"].ratio, found["plain"].low, found["plain"].high) == (1.0, 1.0, 1.0)
    assert (found["ours"].ratio, found["ours"].low, found["ours"].high) == (2.0, 2.0, 2.0)
    assert found["ours"].repeats == 6  # 2, 20, 2, 20, 2, 20: the 66th second falls into the sixth
    assert (found["plain"].repeats, found["plain"].seconds) == (12, 5.5)


def test_short_steps_are_taken_several_at_a_time(clock):
    peers = {"plain": Sleeper(clock, 0.015625), "ours": Sleeper(clock, 9.0, *[0.03125, 0.0625] * 8)}
    found = m.interleaved(peers, seconds=0.15)
    # Three turns of at least 0.1 s, in 64ths: 7 of plain; 2 + 4 + 2, then 4 + 2 + 4, then 2 + 4 + 2.
    assert [peer.steps for peer in peers.values()] == [1 + 3 * 7, 1 + 3 * 3]
    assert found["plain"].seconds == 1 / 64
    assert (found["ours"].seconds, found["ours"].ratio) == pytest.approx((8 / 3 / 64, 8 / 3))


def test_slow_peers_step_less_often_and_a_very_slow_one_is_left_out(clock):
    seconds = {"plain": 1.0, "opacus_hooks": 4.0, "loop": 50.0, "vmap": 61.0}
    peers = {name: Sleeper(clock, length) for name, length in seconds.items()}
    found = m.interleaved(peers, seconds=5.0)
    # Three steps of 4 s stay below 3·5 s; one of 50 s does not.
    assert {name: timing.repeats for name, timing in found.items()} == {"plain": 5, "opacus_hooks": 3, "loop": 1}
    assert [found[name].ratio for name in found] == [1.0, 4.0, 50.0]
    assert peers["vmap"].steps == 1


def test_quartiles(clock):
    peers = {"plain": Sleeper(clock, 1.0), "ours": Sleeper(clock, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)}
    found = m.interleaved(peers, seconds=15.0)["ours"]  # the nine warms up
    assert (found.low, found.ratio, found.high, found.repeats) == (2.0, 3.0, 4.0, 5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows(monkeypatch):
    peers, _ = choose()
    cases = [StepCase("mlp", 2), RoundCase("small-cnn", 2, 4)]
    told = []
    rows = list(measure(cases, peers, seconds=0.0, memory=False, tell=lambda *news: told.append(news)))
    assert [(r.what, r.model, r.batch, r.clients) for r in rows if r.peer == "ours"] == [
        ("step", "mlp", 2, None),
        ("round", "small-cnn", 4, 2),
    ]
    assert [r.peer for r in rows if r.what == "step"] == peers
    assert all(r.ratio_to_plain > 0 and r.seconds > 0 and r.absent is None for r in rows)
    assert [r.ratio_to_plain for r in rows if r.peer == "plain"] == [1.0, 1.0]
    assert [done for done, _, _ in told] == [0, len(peers)]
    assert told[0][1] == len(peers) + len(set(peers) & {"plain", "ours", "opacus_hooks"})


def test_a_peer_too_large_for_the_machine_is_absent_and_says_so(monkeypatch):
    monkeypatch.setattr("fedfdp.bench.suite._available", lambda: 1e6)
    rows = list(measure([StepCase("mlp", 2)], ["plain", "vmap"], seconds=0.0, memory=False))
    assert rows[1].ratio_to_plain is None
    assert notes(rows) == ["torch.func not measured on mlp, batch 2: it would take about 0.0 GB"]
    assert grids(rows)[0].lines[0][-1] == "–"


def test_a_peer_that_is_not_installed_is_skipped_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    able, missing = choose()
    assert able == ["plain", "ours", "unwatched", "vmap", "loop"]
    assert missing == {"opacus_hooks": "opacus", "opacus_ghost": "opacus"}


def test_peers_and_cases_are_chosen_by_name():
    assert choose(["ours"]) == (["plain", "ours"], {})
    with pytest.raises(SettingError, match="did you mean 'loop'"):
        choose(["lop"])
    assert select(models=["mlp"], batches=[7]) == [StepCase("mlp", 7)]
    assert select(what="round", clients=[5]) == [RoundCase("small-cnn", 5), RoundCase("mnist-cnn", 5)]
    assert len(select()) == 4 * 3 + 2 * 3
    for wrong in ({"models": ["mpl"]}, {"batches": [0]}, {"what": "run"}, {"what": "round", "models": ["mlp"]}):
        with pytest.raises(SettingError):
            select(**wrong)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the high-water mark is told on Linux")
def test_peak_memory_is_that_of_the_step():
    # Of 128 records torch.func holds 128·535,818 floats of gradients at once, 262 MiB; and the plain step none of that.
    stored = 128 * 535_818 * 4 / 2**20
    assert stored < peak(StepCase("mlp", 128), "vmap") < 2.2 * stored
    assert peak(StepCase("mlp", 128), "plain") < 0.1 * stored


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the high-water mark is told on Linux")
@pytest.mark.parametrize(("model", "most"), [("distilbert-lora", 1.25), ("distilbert", 3.0)])
def test_memory_of_a_large_models_first_step(model, most):
    """Of 67 million weights. The first step also proves the pass and compares its gradients with autograd's."""
    pytest.importorskip("peft")
    ours, plain = (peak(StepCase(model, 16), peer, first=True) for peer in ("ours", "plain"))
    assert ours < most * plain


def row(peer, ratio, peak_mb=None, batch=300):
    return Row("step", "mlp", batch, None, peer, ratio, peak_mb, 0.1234, 0.9 * ratio, 1.1 * ratio, 5)


def test_markdown_goes_between_the_marks(tmp_path):
    rows = [row("plain", 1.0, 10.2), row("ours", 1.2, 1234.5), row("plain", 1.0, 3.0, batch=32)]
    text = markdown(rows, "2 threads")
    assert "| model | batch | plain | ours |\n| --- | ---: | ---: | ---: |\n" in text
    assert "| mlp | 300 | 123 ms | 1.20 (1.08–1.32) |\n| mlp | 32 | 123 ms | – |" in text
    assert "| mlp | 300 | 10 | 1,234 |\n| mlp | 32 | 3 | – |" in text
    page = tmp_path / "page.md"
    begin, end = "<!-- fedfdp bench: begin -->", "<!-- fedfdp bench: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    write_markdown(text, page)
    write_markdown(text, page)
    assert page.read_text() == f"before\n{begin}\n\n{text}\n{end}\nafter\n"
    page.write_text("a page of something else\n")
    with pytest.raises(SettingError, match="has no lines"):
        write_markdown(text, page)
    assert page.read_text() == "a page of something else\n"


def test_a_profile_accounts_for_all_of_a_round_and_finds_every_part():
    from fedfdp.bench import profile

    found = profile.profile("small-cnn", 3, rounds=1)
    assert list(found.parts) == [*profile.PARTS, profile.REST]
    assert all(seconds > 0 for seconds in found.parts.values())  # a renamed function would leave its part at 0
    head, lines = profile.table([found])
    assert sum(float(line[1].rstrip("%")) for line in lines[:-1]) == pytest.approx(100, abs=0.6)
    assert head == ["share of a round", "small-cnn, 3 clients"]
