"""Targets of more than one number: each task's loss and measure by hand, and what a run makes of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms.record_types import Population
from fedfdp.core.errors import DataError, SettingError
from fedfdp.core.weights import Weights
from fedfdp.models.tasks import TASKS, Task, find_task
from fedfdp.models.trial import check_task
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.training.defaults import settle
from fedfdp.training.facts import PublicFacts
from fedfdp.training.server_optimizer import ServerOptimizer

PRIVATE = fedfdp.DPSGD(epsilon=8.0, q=0.3, delta=1e-5)
UNSURE = math.log(2)


def test_labels_by_hand():
    task, y = TASKS["multi-label"], torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    output = torch.tensor([[0.0, 0.0], [math.log(3), -math.log(3)]])  # probabilities 1/2, 1/2; 3/4, 1/4
    assert task.loss(output, y).tolist() == pytest.approx([UNSURE, (math.log(4 / 3) + math.log(4)) / 2])
    assert task.right(torch.tensor([[2.0, 3.0], [1.0, 1.0]]), y).tolist() == [0.5, 1.0]
    assert task.outputs(2, (5,)) == 5


def test_tokens_by_hand():
    task, y = TASKS["tokens"], torch.tensor([[1, 0, -100], [-100, -100, -100]])
    output = torch.zeros(2, 3, 2)
    output[0, 0, 1] = math.log(3)
    # ln(4/3) and ln(2) over the two tokens that count; nothing counts in the second record
    assert task.loss(output, y).tolist() == pytest.approx([(math.log(4 / 3) + UNSURE) / 2, 0.0])
    assert task.right(output, y).tolist() == pytest.approx([1.0, math.nan], nan_ok=True)
    assert task.fits((2, 3, 4), 4)
    assert not task.fits((2, 4), 4)


def test_language_is_told_the_next_token():
    task, y = TASKS["language"], torch.tensor([[0, 1, 2, -100]])
    output = torch.zeros(1, 4, 3)
    output[0, 0, 1] = math.log(4)  # after token 0, token 1 has 4/6
    assert task.loss(output, y).tolist() == pytest.approx([(math.log(6 / 4) + math.log(3)) / 2])
    assert task.right(output, y).tolist() == [0.5]
    assert task.of_loss["perplexity"](math.log(7)) == pytest.approx(7)


def test_segmentation_by_hand():
    task, y = TASKS["segmentation"], torch.tensor([[[0, 1], [1, -100]]])
    output = torch.zeros(1, 2, 2, 2)
    output[0, 1] = 1.0  # says 1 everywhere
    low, high = math.log(1 + math.e), math.log(1 + math.exp(-1))
    assert task.loss(output, y).tolist() == pytest.approx([(low + 2 * high) / 3])
    assert task.right(output, y).tolist() == pytest.approx([2 / 3])
    # class 0: nothing of one pixel; class 1: two of three pixels
    assert task.of_answers["iou"](task.answers(output), y) == pytest.approx((0 + 2 / 3) / 2)


def _sequences(chance, records=30, words=9, length=5):
    ids = torch.randint(0, words, (records, length), generator=chance)
    return ids, ids


class Words(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(words, 4), nn.Linear(4, words)

    def forward(self, ids):
        return self.last(self.table(ids).cumsum(1))


def test_a_language_model_is_trained_and_measured():
    chance = torch.Generator().manual_seed(0)
    data = {name: _sequences(chance) for name in ("north", "south")}
    federation = fedfdp.Federation.from_clients(data, task="language", classes=40)
    result = fedfdp.train(Words(40), federation, privacy=PRIVATE, rounds=2)
    summary = result.summary
    assert summary["perplexity"] == pytest.approx(math.exp(summary["loss"]))
    assert 0 <= summary["accuracy"] <= 1
    assert summary["task"]["name"] == "language"
    by_client = result.history[-1]["clients"]
    assert by_client["perplexity"] == pytest.approx(np.exp(by_client["loss"]))
    expected = []
    for client in federation.clients:
        x, y = client.test.take()
        with torch.no_grad():
            logits = result.model(x)[:, :-1].log_softmax(-1)
        expected.append(float(-logits.gather(2, y[:, 1:, None]).mean()))
    assert by_client["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_bound_of_a_released_loss_is_above_the_first_loss():
    data = {name: (torch.zeros(9, 4, dtype=torch.int64),) * 2 for name in ("north", "south")}

    def chosen(classes: int, **given: float) -> float:
        federation = fedfdp.Federation.from_clients(data, task="language", classes=classes)
        facts = PublicFacts.of(Words(classes), federation)
        private = fedfdp.DPSGD(delta=1e-5, sigma=1.0, q=0.3, clip=1.0, sigma_loss=5.0)
        return settle(facts, fedfdp.FedFDP(lr=1.0, **given), private, ServerOptimizer(), 1).algorithm.loss_clip

    assert chosen(5000) == pytest.approx(1.25 * math.log(5000), rel=1e-2)
    assert chosen(5000, loss_clip=3.0) == 3.0
    assert chosen(9) == 2.5


@pytest.mark.parametrize("classes", [None, 2, 30])
def test_labels_begin_at_ln_2_however_many_there_are(classes):
    x = torch.randn(20, 4)
    y = (torch.randn(20, 30) > 0).long()
    federation = fedfdp.Federation.from_clients({"a": (x, y), "b": (x, y)}, task="multi-label", classes=classes)
    facts = PublicFacts.of(nn.Linear(4, 30), federation)
    assert (facts.first_loss, facts.outputs) == (math.log(2), 30)
    private = fedfdp.DPSGD(delta=1e-5, sigma=1.0, q=0.3, clip=1.0, sigma_loss=5.0)
    method = settle(facts, fedfdp.FedFDP(lr=1.0), private, ServerOptimizer(), 1).algorithm
    assert method.loss_clip == 2.5  # the usual bound; ln 30 would have raised it
    public = Population(2, 30, 15, federation.classes)
    assert method.init(Weights.of(dict(nn.Linear(4, 30).named_parameters())), public, private).loss == math.log(2)


def test_segmentation_and_psi_of_its_overlap():
    chance = torch.Generator().manual_seed(1)
    data = {
        name: (torch.randn(20, 1, 6, 6, generator=chance), torch.randint(0, 3, (20, 6, 6), generator=chance))
        for name in ("north", "south")
    }
    federation = fedfdp.Federation.from_clients(data, task="segmentation", classes=3)
    result = fedfdp.train(nn.Conv2d(1, 3, 3, padding=1), federation, privacy=PRIVATE, rounds=2, metric="iou")
    overlap = np.array(result.history[-1]["clients"]["iou"])
    assert result.summary["iou"] == pytest.approx(overlap.mean())
    assert result.summary["psi"] == pytest.approx(overlap.var())


def test_several_labels_are_trained_by_the_rules():
    chance = torch.Generator().manual_seed(2)
    x = torch.randn(60, 4, generator=chance)
    federation = fedfdp.Federation.from_clients({"a": (x, x[:, :3] > 0), "b": (x, x[:, :3] > 0)}, task="multi-label")
    assert (federation.classes, federation.outputs) == (2, 3)
    result = fedfdp.train(nn.Linear(4, 3), federation, algorithm=fedfdp.FedAvg(lr=2.0), rounds=30)
    assert result.summary["accuracy"] > 0.9
    assert federation.holdings()["classes"] is None


@pytest.mark.parametrize("name", ["tokens", "language", "segmentation", "multi-label"])
def test_clipped_sums_are_those_of_each_record(name):
    chance, task = torch.Generator().manual_seed(3), TASKS[name]
    if name == "segmentation":
        model, x = nn.Conv2d(1, 3, 3, padding=1), torch.randn(6, 1, 4, 4, generator=chance)
        y = torch.randint(0, 3, (6, 4, 4), generator=chance)
    elif name == "multi-label":
        model, x, y = nn.Linear(4, 3), torch.randn(6, 4, generator=chance), torch.ones(6, 3)
    else:
        model, x = Words(7), torch.randint(0, 7, (6, 5), generator=chance)
        y = x.clone()
        y[:3, 2:] = -100
    found = clipped_sum(model, task.loss, x, y, clip=0.05)
    total = torch.zeros_like(found.flat)
    for i in range(6):
        grads = torch.autograd.grad(task.loss(model(x[i : i + 1]), y[i : i + 1])[0], list(model.parameters()))
        flat = torch.cat([grad.flatten() for grad in grads])
        total += flat * min(1.0, 0.05 / float(flat.norm()))
    assert torch.allclose(found.flat, total, atol=1e-6)


def test_own_tasks():
    counts = Task("counts", lambda o, y: (o[:, 0].exp() - y * o[:, 0]), lambda o, y: o.new_full((len(y),), math.nan),
                  targets="numbers")  # fmt: skip
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    federation = fedfdp.Federation.from_clients({"a": (x, x[:, 0].exp()), "b": (x, x[:, 0].exp())}, task=counts)
    method = fedfdp.FedFDP(lr=0.1, initial_loss=1.0)
    assert fedfdp.train(nn.Linear(3, 1), federation, algorithm=method, privacy=PRIVATE, rounds=1).summary["rounds"] == 1
    with pytest.raises(SettingError, match="did you mean 'language'"):
        find_task("langage")
    mine = "package.module:TASK, a fedfdp.Task of yours"
    for given, kind in (("fedfdp.models.losses:squared_error", "function"), ("math:pi", "float"), (3, "int")):
        with pytest.raises(SettingError) as error:
            fedfdp.Federation.from_clients({"a": (x, x)}, task=given)
        known = "known: classification, language, multi-label, regression, segmentation, tokens"
        assert str(error.value) == f"task = {given!r}: of type {kind}, not a fedfdp.Task; {known}; or {mine}"


def test_what_does_not_fit_is_refused():
    x, places = torch.zeros(8, 5, dtype=torch.int64), torch.zeros(8, 5, dtype=torch.int64)
    with pytest.raises(DataError, match="unless task says"):
        fedfdp.Federation.from_clients({"a": (x, places)})
    with pytest.raises(DataError, match="needs a class for every place"):
        fedfdp.Federation.from_clients({"a": (x, places[:, 0])}, task="tokens")
    with pytest.raises(DataError, match="needs a 0 or 1 for each label"):
        fedfdp.Federation.from_clients({"a": (x, places + 3)}, task="multi-label")
    wrong = places.clone()
    wrong[7, 2] = 9
    with pytest.raises(DataError, match="row 7 has label 9; 3 classes are numbered 0 to 2, and -100 for"):
        fedfdp.Federation.from_clients({"a": (x, wrong)}, task="tokens", classes=3)
    federation = fedfdp.Federation.from_clients({"a": (x, places)}, task="tokens", classes=3)
    with pytest.raises(SettingError, match=r"expected \(records, …, 3\) for that many classes of a token"):
        fedfdp.train(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), federation, rounds=1)
    with pytest.raises(DataError) as error:
        fedfdp.Federation.from_clients({"a": (x[:, :1], places[:, :1])}, task="language", classes=3)
    allowed = "language tells each place by those before it, and needs 2 or more"
    assert str(error.value) == f"records of length 1; {allowed}: make the length of records, or of a text, larger"
    assert fedfdp.Federation.from_clients({"a": (x[:, :1], places[:, :1])}, task="tokens", classes=3).outputs == 3
    with pytest.raises(SettingError, match="only for the task that has it"):
        fedfdp.train(Words(3), federation, rounds=1, metric="perplexity")


class Given(nn.Module):
    """Answers with what it was given; its one weight changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + 0 * self.weight


def _judged(task, by_client, classes=2):
    """The measures of answers that are given, each client's on all of its records: (outputs, targets)."""
    clients = {name: (x, y, x, y) for name, (x, y) in by_client.items()}
    federation = fedfdp.Federation.from_clients(clients, task=task, classes=classes)
    return fedfdp.train(Given(), federation, algorithm=fedfdp.FedAvg(lr=1.0), rounds=1)


def test_texts_in_which_nothing_is_told_are_left_out():
    y = torch.tensor([[0, 1, 0, 1], [1, 0, -100, -100], [1, -100, -100, -100]])  # 3, 1 and 0 tokens are told
    x = torch.zeros(3, 4, 2)
    x[0, :3, 1] = math.log(3)  # says 1, with 3/4: right, wrong, right; the second record has 1/2 and says 0
    first, second = (2 * math.log(4 / 3) + math.log(4)) / 3, math.log(2)
    found = _judged("language", {"a": (x, y), "b": (x[:1], y[:1]), "none": (x[2:], y[2:])})
    summary, by_client = found.summary, found.history[-1]["clients"]
    assert by_client["loss"] == pytest.approx([(first + second) / 2, first, None])
    assert by_client["accuracy"] == pytest.approx([(2 / 3 + 1) / 2, 2 / 3, None])
    each = [(3 * first + second) / 4, first]  # per token
    assert by_client["perplexity"] == pytest.approx([*np.exp(each), None])
    # Losses by training records, 3 and 1 of them; accuracy over the three records in which something is told.
    assert summary["loss"] == pytest.approx((3 * (first + second) / 2 + first) / 4)
    assert summary["perplexity"] == pytest.approx(math.exp((3 * each[0] + each[1]) / 4))
    assert summary["accuracy"] == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)


def test_a_holder_where_no_pixel_counts_is_left_out():
    y = torch.tensor([[[0, 1], [1, -100]]] * 2)
    x = torch.zeros(2, 2, 2, 2)
    x[:, 1] = 1.0  # says 1 everywhere: right at two of three, which is an overlap of 0 and 2/3
    none = torch.full_like(y, -100)
    summary = _judged("segmentation", {"some": (x, y), "none": (x, none)}).summary
    assert (summary["accuracy"], summary["iou"]) == pytest.approx((2 / 3, 1 / 3))
    assert (summary["worst_accuracy"], summary["psi"]) == pytest.approx((2 / 3, 0.0))


def _pixels(y):
    return fedfdp.Federation.from_clients({"a": (torch.zeros(8, 1, 5, 4), y)}, task="segmentation", classes=2)


@pytest.mark.parametrize("shape", [(8, 1, 5, 4), (8, 4, 5), (8, 20)])
def test_targets_at_other_places_than_the_outputs_are_refused_before_a_round_is_paid(shape, tmp_path):
    federation = _pixels(torch.zeros(shape, dtype=torch.int64))
    given = ", ".join(map(str, shape[1:]))
    said = (
        f"task = 'segmentation': targets of shape (records, {given}), where the model gives (records, 2, 5, 4); "
        "it needs a class for every place, (records, 5, 4)"
    )
    with pytest.raises(SettingError) as refused:
        fedfdp.train(nn.Conv2d(1, 2, 1), federation, privacy=PRIVATE, rounds=1, out=tmp_path / "run")
    assert str(refused.value) == said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tokens", "language"])
@pytest.mark.parametrize("shape", [(8, 3), (8, 4, 1)])
def test_targets_of_another_length_are_refused(name, shape):
    x, y = torch.zeros(8, 4, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    federation = fedfdp.Federation.from_clients({"a": (x, y)}, task=name, classes=9)
    with pytest.raises(SettingError, match=r"where the model gives \(records, 4, 9\); .* \(records, 4\)$"):
        fedfdp.train(Words(9), federation, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1)


def _loss(output, y):
    return output[:, 0].exp() - y * output[:, 0]


def _nan(output, y):
    return output.new_full((len(y),), math.nan)


ONE = (
    "for 2 records, one number each; "
    "no mean over the batch (reduction='none'), and no dimension but that of the records"
)


def _counted(loss=_loss, right=_nan):
    """One round without privacy of a task of these functions."""
    task, x = Task("counts", loss, right, targets="numbers"), torch.ones(40, 3)
    federation = fedfdp.Federation.from_clients({"a": (x, x[:, 0] + 1)}, task=task)
    return fedfdp.train(nn.Linear(3, 1), federation, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"loss": lambda o, y: _loss(o, y).mean()}, f"its loss gives shape () {ONE}"),
        ({"loss": lambda o, y: o.exp() - y[:, None] * o}, f"its loss gives shape (2, 1) {ONE}"),
        ({"loss": lambda o, y: [0.0, 0.0]}, f"its loss gives a list {ONE}"),
        (
            {"loss": lambda o, y: {}["absent"]},
            "its loss fails on two made-up records (zeros, ones and others): 'absent'",
        ),
        ({"right": lambda o, y: None}, f"its `right` gives a NoneType {ONE}"),
        ({"right": lambda o, y: torch.tensor(1.0)}, f"its `right` gives shape () {ONE}"),
        (
            {"right": lambda o, y: o.argmax(5)},
            "its `right` fails on two made-up records (zeros, ones and others): Dimension out of range",
        ),
    ],
)
def test_what_an_own_task_gives_is_tried_first(wrong, said):
    with pytest.raises(SettingError) as refused:
        _counted(**wrong)
    assert str(refused.value).startswith(f"task = 'counts': {said}")
    assert "\n" not in str(refused.value)


def test_an_own_loss_of_positive_targets_need_not_take_zeros():
    """The made-up targets are zeros, which a distribution that checks its values refuses."""

    def checked(output, y):
        return -torch.distributions.LogNormal(output[:, 0], 1.0, validate_args=True).log_prob(y)

    assert math.isfinite(_counted(loss=checked).summary["loss"])


class Keeper:
    """A loss that fails on made-up targets, so that it is shown real ones, and keeps the first of those."""

    def __init__(self):
        self.tried, self.kept = False, None

    def __call__(self, output, y):
        if not self.tried:
            self.tried = True
            raise ValueError("no")
        if self.kept is None:
            self.kept = float(y[0])
        return torch.nn.functional.cross_entropy(output, y, reduction="none") * (1 - 2 * self.kept)


@pytest.mark.parametrize("first", [0, 1])
def test_a_loss_that_keeps_what_it_is_tried_on_is_refused(first, tmp_path):
    """It would turn every record's gradient round by the first record's label alone."""
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    y[0] = first
    federation = fedfdp.Federation.from_clients({"a": (x[:30], y[:30]), "b": (x[30:], y[30:])})
    with pytest.raises(SettingError, match="changes it"):
        fedfdp.train(nn.Linear(4, 2), federation, loss=Keeper(), privacy=PRIVATE, rounds=1, out=tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.parametrize("loss", [lambda o, y: (o.argmax(-1) != y).float(), lambda o, y: o.detach().exp().sum(1)])
def test_a_loss_without_a_gradient_is_refused(loss):
    federation = fedfdp.Federation.from_clients({"a": (torch.zeros(8, 3), torch.arange(8) % 2)})
    with pytest.raises(SettingError, match=r"^loss = .*has no gradient: nothing but noise would be trained"):
        fedfdp.train(nn.Linear(3, 2), federation, loss=loss, privacy=PRIVATE, rounds=1)


def test_a_measure_of_an_own_task_is_tried_first_and_not_asked_about_holders_without_records_that_count():
    x, y = torch.zeros(8, 4, dtype=torch.int64), torch.zeros(8, 4, dtype=torch.int64)
    clients = {"a": (x, y), "b": (x, torch.full_like(y, -100))}

    def trained(of_loss):
        task = replace(TASKS["tokens"], name="own", of_loss={"whole": of_loss})
        federation = fedfdp.Federation.from_clients(clients, task=task, classes=9)
        return fedfdp.train(Words(9), federation, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1)

    assert trained(lambda loss: float(round(100 * loss))).summary["loss"] > 0  # round fails on NaN
    with pytest.raises(SettingError, match=r"^task = 'own': its measure 'whole' fails on a loss of 1"):
        trained(lambda loss: {}["absent"])


def test_an_axis_that_outputs_do_not_have_fits_nothing():
    for axis in (3, -4):
        assert not replace(TASKS["tokens"], name="own", axis=axis).fits((2, 5, 9), 9)


def test_a_trial_draws_nothing_from_the_seed():
    before = torch.get_rng_state()
    check_task(Task("drawn", lambda o, y: o.sum(1) * torch.rand(len(y)), _nan), torch.zeros(3), (2, 1))
    assert torch.equal(before, torch.get_rng_state())
